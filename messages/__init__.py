"""What travels between Tradewind's processes: structs, subjects, envelope, codec.

This package imports nothing else of ours, so that every role can depend on it and no two roles on each other.
"""

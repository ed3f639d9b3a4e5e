"""Messages between Tradewind's processes: structs, subjects, envelope, codec.

This package imports no other package of Tradewind, so that all roles can depend on it and not on each other.
"""

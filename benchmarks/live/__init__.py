"""Shared parts of the benchmarks of changing worlds: a fleet with live trainers, their traces, the report."""

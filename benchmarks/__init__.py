"""Measurements, each a command: `python -m benchmarks.NAME [--json]`; `python -m benchmarks` runs all."""

"""What the benchmarks of changing worlds share: a fleet whose trainers live on, what they write down, the report."""

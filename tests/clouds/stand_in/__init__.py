"""A Google of a few lines: what each outcome needs to be provoked, and nothing else."""

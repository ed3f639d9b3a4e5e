"""Samples: which of them a step takes, how they are read, and how they are handed to the script."""

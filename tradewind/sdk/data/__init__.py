"""Samples: their order, how a rank reads its share, and how the script gets it."""

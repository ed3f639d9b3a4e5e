"""Thousands of workers that a few processes play, each with its own connection to the bus."""

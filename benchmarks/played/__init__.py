"""Thousands of workers played by few processes, each with its own connection to the bus."""

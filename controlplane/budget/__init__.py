"""Keeps what a job has spent within what it may spend."""

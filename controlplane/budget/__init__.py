"""Keeps the spending of each job within its budget."""

"""The HTTP client of the master's API, and what follows a job through it."""

"""The HTTP client of the master's API, and functions that follow a job."""

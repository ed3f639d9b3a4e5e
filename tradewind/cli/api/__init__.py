"""The master's HTTP API as the command uses it: asking, following, waiting for a job's end."""

"""The connection to the worker-agent, and what it reports of steps."""

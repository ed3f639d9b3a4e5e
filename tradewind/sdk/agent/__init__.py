"""The connection to the worker-agent, and the reports of steps."""

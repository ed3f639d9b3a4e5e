"""A Kubernetes API server for each cluster: objects in memory, watches, the controllers that make and place pods."""

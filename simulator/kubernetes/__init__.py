"""A Kubernetes API server for each cluster: objects in memory, watches, controllers that create and place pods."""

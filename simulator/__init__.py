"""A stand-in cloud that works with the same clients as Google's APIs and Kubernetes."""

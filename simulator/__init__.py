"""A stand-in cloud: the same clients that talk to Google and to Kubernetes cannot tell it from the real one."""

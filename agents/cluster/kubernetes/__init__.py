"""The cluster-controller on Kubernetes: the core of the static controller, with pods as places."""

"""The cluster-controller on Kubernetes: the same core as the static one, with pods for places."""

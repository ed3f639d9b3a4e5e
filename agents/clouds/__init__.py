"""What agents know about the clouds of their nodes. `controlplane/clouds` is what the control plane knows."""

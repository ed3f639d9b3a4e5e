"""Clouds as the agents on their nodes know them; the control plane knows them in `controlplane/clouds`."""

"""One region of the simulated cloud: its clusters, their nodes, and the private API of the cloud."""

"""The cloud half of the simulator: clusters, pools and nodes behind GKE's own API, a spot market, a bill."""

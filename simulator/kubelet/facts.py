"""What a node's agent knows about its node and about running pods on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simulator.accounts import DEFAULT_ACCOUNT
from simulator.kubelet.images import ImageRuntime
from simulator.kubernetes.objects import Obj

TokenSource = Callable[[Obj], str]
"""Issues a token for a service account."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    host_ip: str
    folder: Path
    """Folder that all pods of the node share."""
    metadata_host: str
    """Host and port of the metadata server for pods in the node's network."""
    hidden_metadata_host: str
    """Host and port of the metadata server for all other pods, which hides the notice."""
    service_account: str = DEFAULT_ACCOUNT
    """Service account with which the node pulls images."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    cluster: str
    endpoint: str
    """URL at which pods reach the cluster's API."""
    run_mark: str
    """Value of an environment variable that every process of the region has."""
    pods_folder: Path
    images: Mapping[str, ImageRuntime] = field(default_factory=dict)
    pull_backoff_s: float = 10.0
    """Seconds after the first failed pull; doubles with each failure in a row (not verified against Google)."""
    pull_backoff_most_s: float = 300.0
    crash_backoff_s: float = 10.0
    crash_backoff_most_s: float = 300.0
    crash_forgiven_s: float = 600.0
    """Seconds after which a container that ends is restarted without delay."""
    token_s: float = 3600.0
    log_bytes: int = 64 * 1024 * 1024
    """Size at which a log is truncated."""

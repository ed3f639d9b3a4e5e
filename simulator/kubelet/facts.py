"""What a node's agent is told about its node and about how to run things on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simulator.kubelet.images import DEFAULT_ACCOUNT, ImageRuntime
from simulator.kubernetes.objects import Obj

TokenSource = Callable[[Obj], str]
"""A fresh token for the service account."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    host_ip: str
    folder: Path
    """What all pods of the node share."""
    metadata_host: str
    """The metadata server, as pods in the node's own network reach it."""
    hidden_metadata_host: str
    """What all other pods reach, which tells less."""
    service_account: str = DEFAULT_ACCOUNT
    """With which the node pulls images."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    cluster: str
    endpoint: str
    """The cluster's API, as pods reach it."""
    run_mark: str
    """Carried by every process of the region."""
    pods_folder: Path
    images: Mapping[str, ImageRuntime] = field(default_factory=dict)
    pull_backoff_s: float = 10.0
    """After the first failed pull of an image; doubles with each failure in a row (not verified against Google)."""
    pull_backoff_most_s: float = 300.0
    crash_backoff_s: float = 10.0
    crash_backoff_most_s: float = 300.0
    crash_forgiven_s: float = 600.0
    """A container that ran this long starts again without delay."""
    token_s: float = 3600.0
    log_bytes: int = 64 * 1024 * 1024
    """A longer log begins anew."""

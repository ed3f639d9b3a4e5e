"""Service accounts of nodes, and whether they may pull images from Google's registries."""

from dataclasses import dataclass, field

DEFAULT_ACCOUNT = "default"
"""GKE's name of the project's default compute account in a node's configuration."""


@dataclass(slots=True)
class Accounts:
    """Service accounts of nodes that lack the role for pulls."""

    roleless: set[str] = field(default_factory=set)

    def set(self, account: str, *, granted: bool) -> None:
        if granted:
            self.roleless.discard(account)
        else:
            self.roleless.add(account)

"""Stand-ins for images (an interpreter and a search path of this machine), and failing pulls.

Failures have the texts of containerd and of the kubelet. A node pulls from Google's registries with its service
account: without a role, the registry answers 403.
"""

import fnmatch
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

DEFAULT_ACCOUNT = "default"
"""GKE's name of the project's default compute account in a node's configuration."""
_GOOGLES = re.compile(r"^([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)$")
_REFERENCE = re.compile(
    r"^([a-zA-Z0-9.-]+(:\d+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?$"
)


class Pull(StrEnum):
    """Result of a pull of an image."""

    WORKS = "works"
    FORBIDDEN = "forbidden"
    MISSING = "missing"
    OTHER_PLATFORM = "other_platform"
    UNAVAILABLE = "unavailable"
    """The registry fails with 503."""


@dataclass(frozen=True, slots=True)
class PullFailed:
    reason: str
    """The reason of the container's waiting state."""
    message: str


@dataclass(slots=True)
class Accounts:
    """Service accounts of nodes that lack the role for pulls."""

    roleless: set[str] = field(default_factory=set)

    def set(self, account: str, *, granted: bool) -> None:
        if granted:
            self.roleless.discard(account)
        else:
            self.roleless.add(account)


def tried_pull(image: str, pull: Pull, account: str, roleless: Collection[str]) -> PullFailed | None:
    """The failure of a pull, or None. `pull` is the result that the settings give for the image."""
    if not _REFERENCE.match(image):
        return PullFailed(
            "InvalidImageName",
            f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": '
            "invalid reference format",
        )
    host, path, tag = _parts(image)
    if pull is Pull.WORKS and account in roleless and _GOOGLES.match(host):
        pull = Pull.FORBIDDEN
    why = {
        Pull.WORKS: "",
        Pull.FORBIDDEN: (
            f'failed to resolve reference "{image}": failed to authorize: failed to fetch oauth token: unexpected '
            f"status from GET request to https://{host}/v2/token?scope=repository%3A{path}%3Apull&service={host}: "
            "403 Forbidden"
        ),
        Pull.MISSING: f'failed to resolve reference "{image}": {image}: not found',
        Pull.OTHER_PLATFORM: "no match for platform in manifest: not found",
        Pull.UNAVAILABLE: (
            f'failed to resolve reference "{image}": unexpected status from HEAD request to '
            f"https://{host}/v2/{path}/manifests/{tag}: 503 Service Unavailable"
        ),
    }[pull]
    if not why:
        return None
    code = "NotFound" if why.endswith("not found") else "Unknown"
    return PullFailed(
        "ErrImagePull", f'rpc error: code = {code} desc = failed to pull and unpack image "{image}": {why}'
    )


def back_off(image: str, failed: PullFailed) -> PullFailed:
    """The waiting state between two pulls, with the kubelet's text since 1.32."""
    message = f'Back-off pulling image "{image}": {failed.reason}: {failed.message}'
    return PullFailed("ImagePullBackOff", message)


def _parts(image: str) -> tuple[str, str, str]:
    """Host, repository and tag or digest."""
    name, _, digest = image.partition("@")
    first, slash, rest = name.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    host, path = (first, rest) if is_host else ("docker.io", name if slash else f"library/{name}")
    path, _, tag = path.partition(":")
    return host, path, digest or tag or "latest"


class ImageRuntime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    python: str = ""
    """Interpreter for `python` and `python3`; by default that of the simulator."""
    path: str = ""
    """Colon-separated folders that are searched for programs first."""
    entrypoint: tuple[str, ...] = ()
    """Command of a container that has none."""
    pull: Pull = Pull.WORKS
    """Result of a pull of the image."""

    def interpreter(self) -> str:
        return self.python or sys.executable

    def search_path(self, inherited: str) -> str:
        parts = (self.path, str(Path(self.interpreter()).parent), inherited)
        return ":".join(part for part in parts if part)


def runtime_of(image: str, images: Mapping[str, ImageRuntime]) -> ImageRuntime:
    """The runtime whose pattern (`registry/*/trainer:*`) matches; otherwise the simulator's own environment."""
    return next((found for pattern, found in images.items() if fnmatch.fnmatchcase(image, pattern)), ImageRuntime())

"""Stand-ins for images (an interpreter and a search path of this machine), and failing pulls.

Failures have the texts of containerd and of the kubelet. A node pulls from Google's registries with its service
account: without a role, the registry answers 403.
"""

import fnmatch
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import assert_never
from urllib.parse import urlencode

from msgspec import Struct

_GOOGLES = re.compile(r"[a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io")
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?"
_COMPONENT = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"({_LABEL}(\.{_LABEL})*(:[0-9]+)?/)?{_COMPONENT}(/{_COMPONENT})*(:\w[\w.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)
_DOCKER_HUB = "docker.io"
_DOCKER_HUB_API = "registry-1.docker.io"


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


@dataclass(frozen=True, slots=True)
class _Reference:
    """The parts of an image's name, with containerd's defaults for those that the name lacks."""

    host: str
    path: str
    tag: str
    digest: str
    """Empty if the name has none; otherwise the tag is ignored."""

    @property
    def api(self) -> str:
        """The host and path of the image in the registry's API."""
        host = _DOCKER_HUB_API if self.host == _DOCKER_HUB else self.host
        return f"{host}/v2/{self.path}"

    def __str__(self) -> str:
        return f"{self.host}/{self.path}@{self.digest}" if self.digest else f"{self.host}/{self.path}:{self.tag}"


def pull_failure(image: str, pull: Pull, account: str, roleless: Collection[str]) -> PullFailed | None:
    """Why a node cannot pull an image; None if it can. `pull` is the result that the settings give for the image."""
    if not _REFERENCE.fullmatch(image):
        return PullFailed(
            "InvalidImageName",
            f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": '
            "invalid reference format",
        )
    reference = _parse(image)
    if pull is Pull.WORKS and account in roleless and _GOOGLES.fullmatch(reference.host):
        pull = Pull.FORBIDDEN
    why = _why(pull, reference)
    if why is None:
        return None
    code = "NotFound" if why.endswith("not found") else "Unknown"
    return PullFailed(
        "ErrImagePull", f'rpc error: code = {code} desc = failed to pull and unpack image "{reference}": {why}'
    )


def back_off_state(image: str, failed: PullFailed) -> PullFailed:
    """The waiting state between two pulls, with the kubelet's text since 1.32."""
    message = f'Back-off pulling image "{image}": {failed.reason}: {failed.message}'
    return PullFailed("ImagePullBackOff", message)


def _why(pull: Pull, reference: _Reference) -> str | None:
    unresolved = f'failed to resolve reference "{reference}"'
    match pull:
        case Pull.WORKS:
            return None
        case Pull.FORBIDDEN:
            query = urlencode({"scope": f"repository:{reference.path}:pull", "service": reference.host})
            return (
                f"{unresolved}: failed to authorize: failed to fetch oauth token: unexpected status from GET request "
                f"to https://{reference.host}/v2/token?{query}: 403 Forbidden"
            )
        case Pull.MISSING:
            return f"{unresolved}: {reference}: not found"
        case Pull.OTHER_PLATFORM:
            return "no match for platform in manifest: not found"
        case Pull.UNAVAILABLE:
            return (
                f"{unresolved}: unexpected status from HEAD request to "
                f"https://{reference.api}/manifests/{reference.digest or reference.tag}: 503 Service Unavailable"
            )
        case _:
            assert_never(pull)


def _parse(image: str) -> _Reference:
    name, _, digest = image.partition("@")
    first, slash, rest = name.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    host, path = (first, rest) if is_host else (_DOCKER_HUB, name if slash else f"library/{name}")
    path, _, tag = path.partition(":")
    return _Reference(host, path, tag or "latest", digest)


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

"""What stands in for an image: an interpreter and a search path of this machine."""

import fnmatch
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from simulator.kubelet.pulls import Pull


class ImageRuntime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    python: str = ""
    """What `python` and `python3` mean; by default the interpreter of the simulator."""
    path: str = ""
    """Folders searched for programs before all others, with colons between."""
    entrypoint: tuple[str, ...] = ()
    """Run when a container has no command of its own."""
    pull: Pull = Pull.WORKS
    """What a pull of the image comes to."""

    def interpreter(self) -> str:
        return self.python or sys.executable

    def search_path(self, inherited: str) -> str:
        parts = (self.path, str(Path(self.interpreter()).parent), inherited)
        return ":".join(part for part in parts if part)


def runtime_of(image: str, images: Mapping[str, ImageRuntime]) -> ImageRuntime:
    """The one whose pattern (`registry/*/trainer:*`) fits; the simulator's own environment where none does."""
    return next((found for pattern, found in images.items() if fnmatch.fnmatchcase(image, pattern)), ImageRuntime())

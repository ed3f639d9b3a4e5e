"""Providers of machines, found by name.

A provider is a folder `controlplane/clouds/<kind>` whose module `provider` has a `PROVIDER`. Nothing else in the
control plane has to know it. The agents on its nodes know it in a folder of the same name in `agents/clouds`.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from controlplane import clouds
from controlplane.catalog.refresh import Prices
from controlplane.clouds.interface import Cloud, MachineInfo
from controlplane.clouds.spec import Fleet

Environ = Mapping[str, str]
Problem = tuple[str, str]
"""A path in the fleet file, and what is wrong there."""

DEFAULT = "gke"
"""The provider whose keys are explained where a file names none that is known."""


class Provider(Protocol):
    """All that is particular to a cloud. `fleet` is always of `fleet_type`: the part of a fleet in this cloud."""

    @property
    def fleet_type(self) -> type[Fleet]:
        """The keys of a fleet file, with those that only this cloud has."""

    def problems(self, fleet: Any) -> Sequence[Problem]:
        """What no single key of the file can show."""

    def placed(self, fleet: Any, folder: Path) -> Fleet:
        """With the paths in it resolved from the folder of the file."""

    def load(self) -> None:
        """Imports what is needed later; blocks."""

    async def open(self, fleet: Any, environ: Environ) -> Cloud:
        """Raises `UserError` for settings that cannot be used. Makes no call yet."""

    def prices(self, fleet: Any, environ: Environ, cloud: Cloud) -> Prices:
        """What the cloud's machines cost; `cloud` is what `open` answered. Reads files. Raises `UserError`."""

    def pull_hint(self, fleet: Any, environ: Environ) -> Callable[[str], str]:
        """How to let nodes pull an image; empty where its registry is not the cloud's."""

    def removal_command(self, fleet: Any, environ: Environ, machine: MachineInfo) -> str:
        """The command with which a person removes a machine that is in no pool."""


_registered: dict[str, Provider] = {}


def register(kind: str, provider: Provider) -> None:
    """Adds a provider that has no folder here."""
    _registered[kind] = provider


def unregister(kind: str) -> None:
    _registered.pop(kind, None)


def kinds() -> list[str]:
    folders = (each.name for each in pkgutil.iter_modules(clouds.__path__) if each.ispkg)
    return sorted({*_registered, *folders})


def provider_of(kind: str) -> Provider:
    """Raises `KeyError` if there is none."""
    if kind not in kinds():
        raise KeyError(kind)
    if kind not in _registered:
        found: Provider = importlib.import_module(f"{clouds.__name__}.{kind}.provider").PROVIDER
        _registered[kind] = found
    return _registered[kind]

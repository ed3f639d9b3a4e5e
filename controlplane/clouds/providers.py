"""Providers of machines, found by name.

A provider is a folder `controlplane/clouds/<kind>` whose module `provider` has a `PROVIDER`. No other code in the
control plane refers to it. A folder of the same name in `agents/clouds` has what the agents on its nodes must know.
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
"""A path in the fleet file and what is wrong with its value."""

DEFAULT = "gke"
"""The provider whose keys an error message explains if the file does not name a known provider."""


class Provider(Protocol):
    """What is specific to a cloud. `fleet` is the part of a fleet in this cloud and has the type `fleet_type`."""

    @property
    def fleet_type(self) -> type[Fleet]:
        """The keys of a fleet file, including those of this cloud alone."""

    def problems(self, fleet: Any) -> Sequence[Problem]:
        """Problems that concern several keys of the file."""

    def placed(self, fleet: Any, folder: Path) -> Fleet:
        """The fleet with its paths resolved relative to the file's folder."""

    def load(self) -> None:
        """Import modules that are needed later; blocks."""

    async def open(self, fleet: Any, environ: Environ) -> Cloud:
        """Create the cloud without calling it. Raises `UserError` for unusable settings."""

    def prices(self, fleet: Any, environ: Environ, cloud: Cloud) -> Prices:
        """Prices of the cloud's machines; `cloud` is the result of `open`. Reads files. Raises `UserError`."""

    def pull_hint(self, fleet: Any, environ: Environ) -> Callable[[str], str]:
        """A function that explains how to let nodes pull an image; its text is empty for registries of others."""

    def removal_command(self, fleet: Any, environ: Environ, machine: MachineInfo) -> str:
        """The command that removes a machine which is in no pool."""


_registered: dict[str, Provider] = {}


def register(kind: str, provider: Provider) -> None:
    """Add a provider that has no folder here."""
    _registered[kind] = provider


def unregister(kind: str) -> None:
    _registered.pop(kind, None)


def kinds() -> list[str]:
    folders = (each.name for each in pkgutil.iter_modules(clouds.__path__) if each.ispkg)
    return sorted({*_registered, *folders})


def provider_of(kind: str) -> Provider:
    """The provider with this name. Raises `KeyError` if there is none."""
    if kind not in kinds():
        raise KeyError(kind)
    if kind not in _registered:
        found: Provider = importlib.import_module(f"{clouds.__name__}.{kind}.provider").PROVIDER
        _registered[kind] = found
    return _registered[kind]

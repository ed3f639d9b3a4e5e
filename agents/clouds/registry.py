"""Clouds by the kinds that the fleet file uses.

A cloud is a folder `agents/clouds/<kind>` whose module `cloud` has a `CLOUD`. No other module names a cloud.
"""

import importlib
import pkgutil

from agents import clouds
from agents.clouds.interface import Cloud
from runtime.errors import UserError

DEFAULT = "gke"
"""The cloud of agents whose manifests name none. Earlier versions installed such manifests."""

_registered: dict[str, Cloud] = {}


def register(kind: str, cloud: Cloud) -> None:
    """Adds a cloud that has no folder here."""
    _registered[kind] = cloud


def unregister(kind: str) -> None:
    _registered.pop(kind, None)


def kinds() -> list[str]:
    folders = (each.name for each in pkgutil.iter_modules(clouds.__path__) if each.ispkg)
    return sorted({*_registered, *folders})


def cloud_of(kind: str) -> Cloud:
    """Returns the cloud of this kind, or raises `UserError`."""
    if kind not in kinds():
        raise UserError(f"TRADEWIND_CLOUD: there is no cloud {kind!r}", f"use one of: {', '.join(kinds())}")
    if kind not in _registered:
        found: Cloud = importlib.import_module(f"{clouds.__name__}.{kind}.cloud").CLOUD
        _registered[kind] = found
    return _registered[kind]

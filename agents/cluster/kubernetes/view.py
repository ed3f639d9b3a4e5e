"""What is known of all objects of one kind. Compares, so that no change and no deletion goes unnoticed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from agents.cluster.kubernetes.objects import Object

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """New, or not as it was."""

    object: T


@dataclass(frozen=True, slots=True)
class Vanished(Generic[T]):
    """As it was last seen."""

    object: T


Change = Seen[T] | Vanished[T]


class View(Generic[T]):
    """By name. An object of the same name with another uid is another object: the first one has vanished."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}

    @property
    def objects(self) -> Mapping[str, T]:
        return MappingProxyType(self._objects)

    def replace(self, listed: Iterable[T]) -> list[Change[T]]:
        """Everything that exists: what was known and is not in it has vanished meanwhile."""
        there = {found.metadata.name: found for found in listed}
        changes: list[Change[T]] = [
            Vanished(known) for name, known in self._objects.items() if not _is_same(known, there.get(name))
        ]
        changes += [Seen(found) for name, found in there.items() if self._objects.get(name) != found]
        self._objects = there
        return changes

    def see(self, found: T) -> list[Change[T]]:
        known = self._objects.get(found.metadata.name)
        self._objects[found.metadata.name] = found
        if known is None or _is_same(known, found):
            return [Seen(found)]
        return [Vanished(known), Seen(found)]

    def lose(self, last: T) -> list[Change[T]]:
        known = self._objects.get(last.metadata.name)
        if known is None or not _is_same(known, last):
            return []
        del self._objects[last.metadata.name]
        return [Vanished(last)]


def _is_same(known: Object, found: Object | None) -> bool:
    return found is not None and known.metadata.uid == found.metadata.uid

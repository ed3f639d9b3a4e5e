"""The KV bucket of the joint simulation, used by the production functions that read and write worlds."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from runtime.bus import Bucket, Entry

T = TypeVar("T")


class SimulatedBucket(Bucket):
    """A bucket that answers at once; its users add the delay."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._revision = 0

    async def get(self, key: str) -> Entry | None:
        value = self.values.get(key)
        return Entry(value, self._revision) if value is not None else None

    async def put(self, key: str, value: bytes) -> int:
        self._revision += 1
        self.values[key] = value
        return self._revision

    async def delete(self, key: str) -> None:
        self.values.pop(key, None)

    async def revisions(self, pattern: str = ">") -> dict[str, int]:
        prefix = pattern.removesuffix(">")
        return {key: self._revision for key in self.values if key.startswith(prefix)}


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    raise AssertionError("it waits")

"""Where the ranks of a world find each other's addresses, with few questions.

gloo asks the store for one peer after the other and three times for each, which takes seconds where the store is in
another region. Here the first question is for all of them.
"""

from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store


class Meeting(Store):
    """As much of a store as gloo needs to connect a group."""

    def __init__(self, store: Store, size: int) -> None:
        super().__init__()
        self._store: Any = store  # torch's own description of it knows nothing of bytes
        self._size = size
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: bytes | str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        if key not in self._known:
            folder, _, rank = key.rpartition("/")
            keys = [f"{folder}/{peer}" for peer in range(self._size)] if rank.isdigit() else [key]
            self._known.update(zip(keys, self._store.multi_get(keys), strict=True))
        return self._known[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self.get(key)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

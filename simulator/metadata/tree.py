"""What a node's metadata server knows. Values change, and who waits for a change is woken."""

import asyncio
import hashlib
from dataclasses import dataclass, field

PREEMPTED = "instance/preempted"
MAINTENANCE = "instance/maintenance-event"
HIDDEN = frozenset({PREEMPTED, MAINTENANCE})
"""Not shown to pods that are not in the node's own network."""


@dataclass(slots=True)
class Metadata:
    values: dict[str, str] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, path: str, value: str) -> None:
        self.values[path] = value
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def get(self, path: str, *, hidden: frozenset[str] = frozenset()) -> str | None:
        """A value, or the names in a folder; None when there is neither."""
        if path in self.values and path not in hidden:
            return self.values[path]
        folder = f"{path.rstrip('/')}/" if path.strip("/") else ""
        inside = [name.removeprefix(folder) for name in self.values if name.startswith(folder) and name not in hidden]
        names = dict.fromkeys(f"{name.partition('/')[0]}{'/' if '/' in name else ''}" for name in inside)
        return "\n".join(sorted(names)) + "\n" if names else None

    async def changed_from(self, path: str, etag: str, timeout_s: float, *, hidden: frozenset[str]) -> str | None:
        """The value once it is another than the one with this tag, or as it is when the time is over."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while True:
            value = self.get(path, hidden=hidden)
            left_s = deadline_s - asyncio.get_running_loop().time()
            if value is None or etag_of(value) != etag or left_s <= 0:
                return value
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
            except TimeoutError:
                continue


def etag_of(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]

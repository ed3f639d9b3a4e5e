"""Where notices come from. Another cloud is one more source."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Notice:
    remaining_s: float
    """Until the machine is taken, when this was heard."""
    why: str


Tell = Callable[[Notice | None], None]


class NoticeSource(Protocol):
    async def watch(self, tell: Tell) -> None:
        """Tells at once what holds now, None if nothing is announced, and then every change; until cancelled."""

"""The output of trainers: bytes become whole lines of text, and the last lines are stored to explain an exit."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from tradewind.host.excerpt import SIZE_MOST_BYTES, excerpt

LINE_LIMIT_BYTES: Final = 64 * 1024
UPDATE_EVERY_S: Final = 1.0
"""Minimum seconds between two reported states of a progress bar."""
_MAX_LINES: Final = 200


class Lines:
    """Splits a stream of bytes into lines, in bounded memory.

    A line above the limit loses its end and gets a note. A carriage return starts the line again, as on a terminal:
    such a line is a progress bar, whose state is available before the line ends. Bytes that are not UTF-8 are replaced.
    """

    def __init__(self, tail: "Tail | None" = None) -> None:
        """`tail` gets each complete line, even if its last state was an update."""
        self._tail = tail
        self._line = b""
        self._cut_bytes = 0
        self._is_bar = False
        self._shown: str | None = None
        self._shown_s = -math.inf

    def feed(self, data: bytes) -> list[str]:
        """Returns the complete lines, without those whose last state was an update."""
        *ended, rest = data.split(b"\n")
        lines = []
        for piece in ended:
            self._extend(piece)
            lines += self._end()
        self._extend(rest)
        return lines

    def finish(self) -> list[str]:
        """Returns the last line, if the stream ended without a line end."""
        return self._end() if self._line else []

    @property
    def due_s(self) -> float | None:
        """When to report the newest state of a progress bar; None if it is already reported."""
        waits = self._is_bar and self._text().strip() and self._text() != self._shown
        return self._shown_s + UPDATE_EVERY_S if waits else None

    def update(self, now_s: float) -> str | None:
        """Returns the state of a progress bar, if it is due."""
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return None
        self._shown, self._shown_s = self._text(), now_s
        return self._shown

    def _extend(self, piece: bytes) -> None:
        line = self._line + piece
        self._is_bar = self._is_bar or b"\r" in piece
        start = line.rstrip(b"\r").rfind(b"\r") + 1
        if start:
            line, self._cut_bytes = line[start:], 0
        self._line = line[:LINE_LIMIT_BYTES]
        self._cut_bytes += len(line) - len(self._line)

    def _end(self) -> list[str]:
        text, shown = self._text(), self._shown
        self._line, self._cut_bytes, self._is_bar, self._shown = b"", 0, False, None
        if self._tail is not None:
            self._tail.add([text])
        return [] if text == shown else [text]

    def _text(self) -> str:
        text = self._line.rstrip(b"\r").decode(errors="replace")
        return f"{text} … [{self._cut_bytes} bytes cut]" if self._cut_bytes else text


class Tail:
    """The last lines of a stream. `lines` has more than `shown`, because torch's own stack dumps are long."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)

    def add(self, lines: Iterable[str]) -> None:
        self._lines.extend(line[:SIZE_MOST_BYTES] for line in lines)

    def lines(self) -> list[str]:
        return list(self._lines)

    def shown(self) -> list[str]:
        return excerpt(self.lines())

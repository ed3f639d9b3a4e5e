"""What trainers print: bytes in, whole lines of text out, with the last of them kept for whoever asks why it ended."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from tradewind.host.excerpt import SIZE_MOST_BYTES, excerpt

LINE_LIMIT_BYTES: Final = 64 * 1024
UPDATE_EVERY_S: Final = 1.0
"""Seconds between two states of a progress bar that are passed on."""
_KEPT_LINES: Final = 200


class Lines:
    """Cuts a stream of bytes into lines, in bounded memory.

    A line longer than the limit loses its end, and says so. A carriage return starts the line over, as on a terminal:
    such a line is a progress bar, and its state can be had before it ends. What is not UTF-8 is replaced.
    """

    def __init__(self, tail: "Tail | None" = None) -> None:
        """`tail` gets each line that ends, also if its last state was an update."""
        self._tail = tail
        self._line = b""
        self._cut_bytes = 0
        self._is_bar = False
        self._shown: str | None = None
        self._shown_s = -math.inf

    def feed(self, data: bytes) -> list[str]:
        """The lines that ended, without those whose last state was an update."""
        *ended, rest = data.split(b"\n")
        lines = []
        for piece in ended:
            self._extend(piece)
            lines += self._end()
        self._extend(rest)
        return lines

    def finish(self) -> list[str]:
        """The last line, if the stream ended without a line end."""
        return self._end() if self._line else []

    @property
    def due_s(self) -> float | None:
        """When the newest state of a progress bar should be shown, if it was not yet."""
        waits = self._is_bar and self._text().strip() and self._text() != self._shown
        return self._shown_s + UPDATE_EVERY_S if waits else None

    def update(self, now_s: float) -> str | None:
        """The state of a progress bar, if it is due."""
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
    """The last lines of a stream. `kept` reaches further back than `shown`: torch's own stack dumps are long."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def add(self, lines: Iterable[str]) -> None:
        self._lines.extend(line[:SIZE_MOST_BYTES] for line in lines)

    def kept(self) -> list[str]:
        return list(self._lines)

    def shown(self) -> list[str]:
        return excerpt(self.kept())

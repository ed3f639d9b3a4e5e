"""What trainers print: bytes in, whole lines of text out, with the last of them kept for whoever asks why it ended."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from tradewind.host.excerpt import SIZE_MOST_BYTES, excerpt

LINE_LIMIT_BYTES: Final = 64 * 1024
_KEPT_LINES: Final = 200


class Lines:
    """Cuts a stream of bytes into lines, in bounded memory.

    A line longer than the limit loses its end, and says so. A carriage return starts the line over, as on a terminal,
    so that a progress bar is one line. What is not UTF-8 is replaced.
    """

    def __init__(self) -> None:
        self._line = b""
        self._cut_bytes = 0

    def feed(self, data: bytes) -> list[str]:
        *ended, rest = data.split(b"\n")
        lines = []
        for piece in ended:
            self._extend(piece)
            lines.append(self._take())
        self._extend(rest)
        return lines

    def finish(self) -> list[str]:
        """The last line, if the stream ended without a line end."""
        return [self._take()] if self._line else []

    def _extend(self, piece: bytes) -> None:
        line = self._line + piece
        start = line.rstrip(b"\r").rfind(b"\r") + 1
        if start:
            line, self._cut_bytes = line[start:], 0
        self._line = line[:LINE_LIMIT_BYTES]
        self._cut_bytes += len(line) - len(self._line)

    def _take(self) -> str:
        text = self._line.rstrip(b"\r").decode(errors="replace")
        if self._cut_bytes:
            text += f" … [{self._cut_bytes} bytes cut]"
        self._line, self._cut_bytes = b"", 0
        return text


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

"""Prints trainers' lines with their ranks on the terminal. A blocked terminal does not delay the agent."""

import contextlib
import queue
import sys
import threading
from collections.abc import Sequence
from typing import TextIO

from messages.ids import Rank
from runtime.plain_text import script_line

WAITING_AT_MOST = 10_000
CLOSE_S = 2.0


class Echo:
    """Writes lines from its own thread, and drops lines if the terminal is too slow."""

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self._streams = {False: stdout or sys.stdout, True: stderr or sys.stderr}
        self._waiting: queue.Queue[tuple[bool, str] | None] = queue.Queue(WAITING_AT_MOST)
        self._thread = threading.Thread(target=self._write, name="echo", daemon=True)
        self._thread.start()

    def add(self, rank: Rank, lines: Sequence[str], *, stderr: bool) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait((stderr, "".join(f"{script_line(rank, line)}\n" for line in lines)))

    def close(self) -> bool:
        """Returns True if all lines were written or the terminal is gone."""
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=CLOSE_S)
            self._thread.join(CLOSE_S)
        return not self._thread.is_alive()

    def _write(self) -> None:
        while (item := self._waiting.get()) is not None:
            stderr, text = item
            try:
                self._streams[stderr].write(text)
                self._streams[stderr].flush()
            except (OSError, ValueError):
                return

"""Functions for training scripts without the SDK: reports to Tradewind, and the job's hyperparameters.

    import tradewind
    for step, batch in enumerate(batches):
        tradewind.report(step, loss=train(batch), samples=len(batch))

Under plain python or torchrun, `report` does nothing, so a script that uses it runs everywhere. In a trainer, it writes
one line to a pipe of the host. It never blocks and never raises, so that reports do not disturb training.
"""

import atexit
import json
import math
import os
import select
import threading
import time
from collections import deque
from typing import Any, Final

from tradewind.protocol.variables import HYPERPARAMETERS

_CHECKPOINT: Final = "checkpoint"
_HELD_REPORTS: Final = 256
_LAST_WAIT_S: Final = 1.0
_LARGEST: Final = 2**63


def report(step: int, loss: float | None = None, samples: int | None = None) -> None:
    """Report that this rank has completed `step`, with its loss and its number of samples.

    A loss that is not finite is shown as `nan`. While the pipe is full, the newest reports wait, up to a limit.
    """
    if _channel is not None:
        _channel.tell(step, loss, samples)


def checkpointed() -> None:
    """Report that a checkpoint is complete: now is a good moment to restart with more workers.

    Call it after each checkpoint, on the rank that wrote it. For scripts that do not use `tradewind.Run`.
    """
    if _channel is not None:
        _channel.say(_encoded({_CHECKPOINT: True, "at": time.time()}))


def is_checkpoint(line: object) -> bool:
    """True if a line from the pipe reports a checkpoint, not a step. The host calls it."""
    return isinstance(line, dict) and _CHECKPOINT in line


def hyperparameters() -> dict[str, Any]:
    """Return the hyperparameters that the master sent for this rank: learning rate, batch shares, and the job's own.

    Empty under plain python or torchrun.
    """
    text = os.environ.get(HYPERPARAMETERS, "{}")
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{HYPERPARAMETERS} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{HYPERPARAMETERS} must be a JSON object, not {text[:80]}")
    return values


class _Channel:
    """The trainer's end of the pipe. Processes that a trainer forks (data workers) do not report."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._pid = os.getpid()
        self._held: deque[bytes] = deque(maxlen=_HELD_REPORTS)
        self._writing = threading.Lock()

    def tell(self, step: int, loss: float | None, samples: int | None) -> None:
        line = _line(step, loss, samples)
        if line is not None:
            self.say(line)

    def say(self, line: bytes) -> None:
        if os.getpid() == self._pid:
            self._held.append(line)
            self.flush()

    def finish(self) -> None:
        """Writes the last reports at exit; waits at most _LAST_WAIT_S for the host to read."""
        deadline = time.monotonic() + _LAST_WAIT_S
        self.flush()
        while self._held and os.getpid() == self._pid and (left_s := deadline - time.monotonic()) > 0:
            select.select([], [self._fd], [], left_s)
            self.flush()

    def flush(self) -> None:
        # Never waits: a signal handler that reports while its own thread writes would wait forever.
        if os.getpid() != self._pid or not self._writing.acquire(blocking=False):
            return
        try:
            while self._held:
                os.write(self._fd, self._held[0])  # shorter than PIPE_BUF: the whole line or nothing
                self._held.popleft()
        except BlockingIOError:
            pass  # full; the next report tries again
        except (OSError, IndexError):
            self._held.clear()
        finally:
            self._writing.release()


def _line(step: int, loss: float | None, samples: int | None) -> bytes | None:
    """Encodes a report; None if the step is not a number."""
    reported_step = _whole(step)
    if reported_step is None:
        return None
    reported = {"step": reported_step, "loss": _number(loss), "samples": _whole(samples), "at": time.time()}
    if reported["loss"] is not None and not math.isfinite(reported["loss"]):
        reported = {**reported, "loss": None, "nonfinite": True}  # JSON has no such numbers
    return _encoded(reported)


def _encoded(reported: dict[str, Any]) -> bytes:
    return json.dumps(reported).encode() + b"\n"


def _whole(value: int | None) -> int | None:
    try:
        number = None if value is None else int(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return number if number is not None and abs(number) < _LARGEST else None


def _number(value: float | None) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


_channel: _Channel | None = None


def connect(fd: int) -> None:
    """Makes this process report to the pipe `fd`. The host calls it after a fork."""
    global _channel
    _channel = _Channel(fd)
    atexit.register(_channel.finish)

"""The host's view of one trainer: its process, its pipes, and how it is ended."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Final, Literal

from tradewind.host import stacks
from tradewind.host.output import Lines, Tail
from tradewind.host.trainer import Newborn, detach
from tradewind.protocol.host import TrainerSpec

_CHUNK_BYTES: Final = 64 * 1024
_LAST_CHUNKS: Final = 16
LINGER_S: Final = 0.2


class Pipe:
    """The reading end of what a trainer writes."""

    def __init__(self, fd: int, source: Literal["stdout", "stderr", "progress"], tail: Tail | None = None) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.source = source
        self.ended = False
        self._lines = Lines(tail)

    def fileno(self) -> int:
        return self.fd

    def read(self) -> list[str] | None:
        """The lines of one chunk; None if nothing is there."""
        try:
            data = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        if data:
            return self._lines.feed(data)
        self.ended = True
        return self._lines.finish()

    @property
    def update_at(self) -> float | None:
        """When the state of a progress bar should be passed on though nothing more was written."""
        return None if self.ended or self.source == "progress" else self._lines.due_s

    def update(self) -> list[str]:
        """The state of a progress bar, if it is due."""
        update = None if self.update_at is None else self._lines.update(time.monotonic())
        return [] if update is None else [update]

    def drain(self) -> Iterator[list[str]]:
        """What is in the pipe now, then the end, whoever may still hold the other side."""
        for _ in range(_LAST_CHUNKS):
            lines = None if self.ended else self.read()
            if lines is None:
                break
            yield lines
        if not self.ended:
            self.ended = True
            yield self._lines.finish()


class TrainerProcess:
    def __init__(
        self,
        generation: int,
        spec: TrainerSpec,
        pid: int,
        pidfd: int,
        pipes: tuple[Pipe, ...],
        tail: Tail,
        stacks_fd: int,
    ) -> None:
        self.generation = generation
        self.rank = spec.rank
        self.error_file = spec.env.get("TORCHELASTIC_ERROR_FILE")
        self.pid = pid
        self.pidfd = pidfd
        self.pipes = pipes
        self.stalled = ""
        """Why it was aborted."""
        self.tail = tail
        """Of its standard error."""
        self.exitcode: int | None = None
        self._stacks_fd = stacks_fd
        self._kill_at: float | None = None
        self._settle_at: float | None = None

    @property
    def running(self) -> bool:
        return self.exitcode is None

    @property
    def next_at(self) -> float | None:
        """When this trainer needs attention though nothing has happened."""
        return self._kill_at if self.running else self._settle_at

    @property
    def settled(self) -> bool:
        """It has exited, and what it wrote was read or is not worth more waiting."""
        if self._settle_at is None:
            return False
        return all(pipe.ended for pipe in self.pipes) or time.monotonic() >= self._settle_at

    def stop(self, grace_s: float) -> None:
        if not self.running:
            return
        if self._kill_at is None:
            self._signal_group(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        self._kill_at = deadline if self._kill_at is None else min(self._kill_at, deadline)

    def abort(self, why: str) -> None:
        """Has it write its stacks, and kills it a moment later. PermissionError: it became another user."""
        if self.running and not self.stalled:
            os.kill(self.pid, stacks.SIGNAL)
            self.stalled = why
            deadline = time.monotonic() + stacks.WRITE_S
            self._kill_at = deadline if self._kill_at is None else min(self._kill_at, deadline)

    @property
    def stacks(self) -> str:
        return stacks.read(self._stacks_fd)

    def kill_if_due(self) -> None:
        if self.running and self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._signal_group(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """To the leading process only."""
        if self.running:
            os.kill(self.pid, number)

    def reap(self) -> None:
        # Killed before it is reaped: until then its number belongs to no other process or group.
        self._signal_group(signal.SIGKILL)
        self.exitcode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._settle_at = time.monotonic() + LINGER_S

    def close(self) -> None:
        os.close(self.pidfd)
        os.close(self._stacks_fd)
        for pipe in self.pipes:
            os.close(pipe.fd)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(PermissionError):  # it became another user
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # forked a moment ago and not yet in its own group
                os.kill(self.pid, number)


def fork_trainer(generation: int, spec: TrainerSpec) -> TrainerProcess | Newborn:
    """Returns twice: the process in the host, the newborn in the process itself. OSError leaves nothing behind."""
    host_pid = os.getpid()
    with contextlib.ExitStack() as undo:
        ends = []
        for _ in ("stdout", "stderr", "progress"):
            read_end, write_end = os.pipe()
            undo.callback(os.close, read_end)
            undo.callback(os.close, write_end)
            ends.append((read_end, write_end))
        (stdout, stdout_w), (stderr, stderr_w), (progress, progress_w) = ends
        stacks_fd = stacks.open_shared()
        undo.callback(os.close, stacks_fd)
        pid = _fork_with_signals_blocked()
        if pid == 0:
            undo.pop_all()
            try:
                for read_end, _ in ends:
                    os.close(read_end)
                detach(host_pid, stdout_w, stderr_w)
            except OSError as error:
                try:
                    os.write(stderr_w, f"tradewind: can't start: {error}\n".encode())
                finally:
                    os._exit(1)  # there must not be two hosts
            return Newborn(spec, progress_w, stacks_fd)
        pidfd = _pidfd(pid)
        undo.pop_all()
    for _, write_end in ends:
        os.close(write_end)
    tail = Tail()
    pipes = (Pipe(stdout, "stdout"), Pipe(stderr, "stderr", tail), Pipe(progress, "progress"))
    return TrainerProcess(generation, spec, pid, pidfd, pipes, tail, stacks_fd)


def _fork_with_signals_blocked() -> int:
    """In the child they stay blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise

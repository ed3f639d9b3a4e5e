"""One trainer in the host: its process, its pipes, and its end."""

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
    """The reading end of a trainer's pipe."""

    def __init__(self, fd: int, source: Literal["stdout", "stderr", "progress"], tail: Tail | None = None) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.source = source
        self.ended = False
        self._lines = Lines(tail)

    def fileno(self) -> int:
        return self.fd

    def read(self) -> list[str] | None:
        """Returns the lines of one chunk; None if the pipe is empty."""
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
        """When to report the state of a progress bar even without new output."""
        return None if self.ended or self.source == "progress" else self._lines.due_s

    def update(self) -> list[str]:
        """Returns the state of a progress bar, if it is due."""
        update = None if self.update_at is None else self._lines.update(time.monotonic())
        return [] if update is None else [update]

    def drain(self) -> Iterator[list[str]]:
        """Yields what is in the pipe now and ends it, even if another process still has the writing end."""
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
        """Why it was aborted; empty if it was not."""
        self.tail = tail
        """The tail of its standard error."""
        self.exitcode: int | None = None
        self._stacks_fd = stacks_fd
        self._kill_at: float | None = None
        self._settle_at: float | None = None

    @property
    def running(self) -> bool:
        return self.exitcode is None

    @property
    def next_at(self) -> float | None:
        """When the host must check this trainer even without an event."""
        return self._kill_at if self.running else self._settle_at

    @property
    def settled(self) -> bool:
        """True once it has exited and its output is read, or LINGER_S after the exit."""
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
        """Makes it write its stacks and kills it soon after. Raises PermissionError if it runs as another user."""
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

    def reap(self) -> None:
        # The group is killed before the process is reaped: afterwards another group may get its number.
        self._signal_group(signal.SIGKILL)
        self.exitcode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._settle_at = time.monotonic() + LINGER_S

    def close(self) -> None:
        os.close(self.pidfd)
        os.close(self._stacks_fd)
        for pipe in self.pipes:
            os.close(pipe.fd)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(PermissionError):  # it runs as another user
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # it was just forked and has no group yet
                os.kill(self.pid, number)


def fork_trainer(generation: int, spec: TrainerSpec) -> TrainerProcess | Newborn:
    """Forks a trainer. Returns a process in the host and a newborn in the fork. After OSError no process is left."""
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
                    os.write(stderr_w, f"tradewind: cannot start the trainer: {error}\n".encode())
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


def code_and_signal(exitcode: int) -> tuple[int | None, str | None]:
    """Splits Python's exit code, which is minus the signal's number if a signal ended the process."""
    if exitcode >= 0:
        return exitcode, None
    try:
        return None, signal.Signals(-exitcode).name
    except ValueError:
        return None, f"SIG{-exitcode}"


def _fork_with_signals_blocked() -> int:
    """Forks with all signals blocked; they stay blocked in the child."""
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

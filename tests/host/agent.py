"""Plays the worker-agent's part: starts a real host and speaks its protocol, without importing any of its code."""

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import eventually_blocking

HOST = Path(__file__).parents[2] / "tradewind" / "host" / "__main__.py"
WAIT_S = 60.0

Message = dict[str, Any]


class Agent:
    """Give each test its own generation; then one host serves them all."""

    def __init__(
        self, command: Sequence[str] = (sys.executable, str(HOST)), env: Mapping[str, str] | None = None
    ) -> None:
        self.messages: list[Message] = []
        self._unread = b""
        self._generations = itertools.count(1)
        self._folder = Path(tempfile.mkdtemp(prefix="tw-"))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._folder / "host"))
        listener.listen(1)
        listener.settimeout(WAIT_S)
        self.process = subprocess.Popen(
            [*command, "--socket", str(self._folder / "host")],
            env=env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.socket, _ = listener.accept()
        listener.close()

    def send(self, **message: object) -> None:
        self.send_raw(_line(message))

    def send_raw(self, data: bytes) -> None:
        self.socket.settimeout(WAIT_S)
        self.socket.sendall(data)

    def fork(
        self,
        script: str | Path | None = None,
        *,
        module: str | None = None,
        ranks: int = 1,
        argv: Sequence[str] = (),
        cwd: Path | None = None,
        env: Callable[[int], dict[str, str]] = lambda rank: {},
        program: bool = False,
        inherit: bool = False,
        after: dict[str, str] | None = None,
    ) -> int:
        """Forks the trainers and returns their generation; `after` this message, which goes out together with that."""
        generation = next(self._generations)
        trainers = [
            {
                "rank": rank,
                "env": {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **env(rank)},
                "script": None if script is None else str(script),
                "module": module,
                "argv": list(argv),
                "cwd": str(cwd or self._folder),
                "program": program,
                "inherit": inherit,
            }
            for rank in range(ranks)
        ]
        fork = {"type": "fork", "generation": generation, "trainers": trainers}
        self.send_raw((_line(after) if after is not None else b"") + _line(fork))
        return generation

    def script(self, text: str, name: str = "train.py") -> Path:
        path = Path(tempfile.mkdtemp(dir=self._folder)) / name
        path.write_text(textwrap.dedent(text))
        return path

    def wait_for(self, kind: str, generation: int | None = None, rank: int | None = None, **fields: object) -> Message:
        """The first message of this kind with these fields, past or to come."""
        wanted = {"type": kind, **fields}
        wanted |= {} if generation is None else {"generation": generation}
        wanted |= {} if rank is None else {"rank": rank}
        return self.wait_until(lambda message: wanted.items() <= _comparable(message).items(), str(wanted))

    def wait_until(self, matches: Callable[[Message], bool], what: str) -> Message:
        deadline = time.monotonic() + WAIT_S
        seen = 0
        while True:
            for message in self.messages[seen:]:
                if matches(message):
                    return message
            seen = len(self.messages)
            if not self.receive(deadline - time.monotonic()):
                raise AssertionError(f"the host left before it said {what}")

    def wait_for_line(self, generation: int, line: str, rank: int = 0) -> None:
        self.wait_until(
            lambda m: (
                m["type"] == "output" and (m["generation"], m["rank"]) == (generation, rank) and line in m["lines"]
            ),
            f"{line!r} of rank {rank}",
        )

    def receive(self, timeout_s: float) -> bool:
        """Takes in what comes next; False when the host has closed."""
        self.socket.settimeout(max(timeout_s, 0.001))
        data = self.socket.recv(1 << 20)
        *lines, self._unread = (self._unread + data).split(b"\n")
        self.messages += map(json.loads, lines)
        return bool(data)

    def lines(self, generation: int, rank: int = 0, stream: str = "stdout") -> list[str]:
        return [
            line
            for message in self.messages
            if message["type"] == "output"
            and (message["generation"], message["rank"], message["stream"]) == (generation, rank, stream)
            for line in message["lines"]
        ]

    def finish(self, generation: int, rank: int = 0) -> Message:
        """Waits until the trainer has exited."""
        return self.wait_for("exited", generation, rank)

    def hang_up(self) -> None:
        self.socket.close()

    def close(self) -> None:
        """Leaves nothing behind, whatever the test did."""
        self.socket.close()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            assert self.process.stderr is not None
            self.process.stderr.close()
            shutil.rmtree(self._folder, ignore_errors=True)


def _comparable(message: Message) -> dict[str, object]:
    return {name: value for name, value in message.items() if not isinstance(value, list | dict)}


def alive(pid: int) -> bool:
    """Whether it runs: who was killed but is not yet collected by its parent does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_gone(pids: Sequence[int]) -> None:
    eventually_blocking(lambda: not any(map(alive, pids)), f"the end of {list(pids)}", WAIT_S)


def _line(message: Mapping[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"

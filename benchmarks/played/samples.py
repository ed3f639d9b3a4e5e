"""Measures CPU and memory of a process and the machine, and the latency of the master's API."""

import contextlib
import http.client
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from benchmarks.report import percentile

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_ANSWER_S: Final = 10.0


def cpu_s(pid: int) -> float:
    """CPU time of the process without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


class Machine(Struct, frozen=True):
    """Clock ticks of all cores since the machine booted."""

    busy: int
    total: int

    def share_since(self, earlier: "Machine") -> float:
        return (self.busy - earlier.busy) / max(1, self.total - earlier.total)


def machine() -> Machine:
    with Path("/proc/stat").open() as stat:
        ticks = [int(field) for field in stat.readline().split()[1:9]]
    return Machine(sum(ticks) - ticks[3] - ticks[4], sum(ticks))


class Latency(Struct, frozen=True):
    asked: int
    failed: int
    p50_ms: float | None
    p99_ms: float | None


class ApiProbe:
    """Sends requests to the master's API, one after the other, until the context ends."""

    def __init__(self, port: int, paths: dict[str, str], per_s: float) -> None:
        self._port = port
        self._paths = paths
        self._pause_s = 1 / per_s
        self._took_ms: dict[str, list[float]] = {name: [] for name in paths}
        self._failed = dict.fromkeys(paths, 0)
        self._ended = threading.Event()
        self._asking = threading.Event()
        self._idle = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._asking.set()
        thread = threading.Thread(target=self._run, name="api-probe", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._asking.set()
            thread.join(_ANSWER_S + 1.0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._asking.clear()
        with self._idle:
            pass
        try:
            yield
        finally:
            self._asking.set()

    def latencies(self) -> dict[str, Latency]:
        return {
            name: Latency(len(took), self._failed[name], _rounded(took, 50), _rounded(took, 99))
            for name, took in self._took_ms.items()
        }

    def _run(self) -> None:
        while not self._ended.is_set():
            for name, path in self._paths.items():
                self._asking.wait()
                with self._idle:
                    self._ask(name, path)
                self._ended.wait(self._pause_s)

    def _ask(self, name: str, path: str) -> None:
        began_s = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_S)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                response.read()
                self._failed[name] += response.status != http.client.OK
            except (OSError, http.client.HTTPException):
                self._failed[name] += 1
        self._took_ms[name].append((time.monotonic() - began_s) * 1000)


def _rounded(values: Sequence[float], share: float) -> float | None:
    found = percentile(values, share)
    return None if found is None else round(found, 2)

"""A whole stack with live trainers on this machine: bus, master, cluster-controller, workers.

With a delay, a proxy puts the workers and their controller far from the bus and the store. The master is near the bus,
and trainers are near each other.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from benchmarks.delay_proxy import Route
from benchmarks.live import trace
from benchmarks.live.trace import Moment, Traced
from benchmarks.processes import command_line
from benchmarks.stacks import StackFailed, fetch, own_folder, read, start_logged, wait
from runtime.children import descendants, free_port

JOB: Final = "live"
READY_S: Final = 120.0
SETTLE_STEPS: Final = 10
"""Steps before and after a change with which it is compared."""
UNWATCHED_S: Final = 0.3
"""Seconds after a fault in which nothing reads the traces, because that uses the cores that are measured."""
_NEAR: Final = "127.0.0.1"
_FAR: Final = "127.0.0.2"
_STORE_PORTS: Final = 8
_POLL_S: Final = 0.02
_SCRIPTS: Final = Path(__file__).parent
_Seen = TypeVar("_Seen")


class Recipe(Struct, frozen=True):
    """Size and speed of a training. `sleep_ms` is for a rank's share when all ranks are there."""

    width: int = 1024
    """1024: 25 MB of parameters and optimizer state; 4096: 250 MB."""
    sleep_ms: float = 50.0
    batch: int = 48

    def command(self, workers: int) -> list[str]:
        sizes = ["--width", str(self.width), "--batch", str(self.batch)]
        return [str(_SCRIPTS / "trainer.py"), *sizes, "--sleep-ms", str(self.sleep_ms * workers)]


class Place(Struct, frozen=True):
    """The worker-agent of a rank, and all processes that it started."""

    rank: int
    trainer: int
    agent: int

    def pids(self) -> list[int]:
        return [self.agent, *descendants(self.agent)]


class Audited(Struct, frozen=True):
    rank: int
    step: int
    digest: str
    certificate: dict[str, Any]


class Verdict(Struct, frozen=True):
    """The certificates of all ranks at the same step."""

    lost: int
    repeated: int
    wrong: int
    recomputed: int
    identical: bool

    @property
    def holds(self) -> bool:
        return self.identical and not (self.lost or self.repeated or self.wrong or self.recomputed)


class LiveFleet:
    def __init__(self, folder: Path, api_url: str, processes: Sequence["subprocess.Popen[bytes]"]) -> None:
        self.folder = folder
        self._reader = trace.Reader(folder / "traces")
        self.controller = processes[-1].pid
        self._gate = folder / "gate"
        self._api_url = api_url
        self._processes = processes

    def events(self) -> list[dict[str, Any]]:
        """The master's events, with `at` on the monotonic clock."""
        offset_s = time.time() - time.monotonic()
        lines = read(f"{self._api_url}/v1/jobs/{JOB}/events").splitlines()
        reported = [json.loads(line) for line in lines if line]
        return [event | {"at": event["at"] - offset_s} for event in reported]

    def scale(self, workers: int) -> None:
        fetch(f"{self._api_url}/v1/jobs/{JOB}/scale", {"workers": workers})

    def trace(self) -> Sequence[Traced]:
        return self._reader.read()

    def hold_back(self) -> None:
        """Makes workers that start from now on wait."""
        self._gate.touch()

    def let_in(self) -> None:
        self._gate.unlink(missing_ok=True)

    def steady(self, world: int, steps: int = SETTLE_STEPS, timeout_s: float = READY_S) -> Moment:
        """Waits until all ranks of a world of size `world` have completed `steps` together."""
        seen: dict[tuple[int, tuple[int, ...]], int] = {}

        def look() -> Moment | None:
            moment = trace.current(self.trace())
            if moment is None or sorted(moment.ranks) != list(range(world)):
                return None
            key = (moment.generation, tuple(moment.ranks[rank] for rank in range(world)))
            since = seen.setdefault(key, moment.step)
            return moment if moment.step >= since + steps else None

        return self.wait(look, f"{world} ranks to train", timeout_s)

    def places(self, moment: Moment) -> dict[int, Place]:
        agents = [pid for pid in descendants(self.controller) if "tradewind worker" in command_line(pid)]
        below = {agent: set(descendants(agent)) for agent in agents}
        found: dict[int, Place] = {}
        for rank, trainer in moment.ranks.items():
            agent = next((pid for pid, own in below.items() if trainer in own), None)
            if agent is None:
                raise StackFailed(f"rank {rank} has no worker-agent")
            found[rank] = Place(rank, trainer, agent)
        return found

    def audit(self, world: int) -> Verdict:
        """Compares digests and certificates of all ranks before the same step."""
        moment = self.steady(world, 1)
        step = moment.step + 6
        asked = self.folder / "audit.new"
        asked.write_text(str(step))
        asked.rename(self.folder / "audit")

        def look() -> list[Audited] | None:
            answers = list(self.folder.glob(f"audit-{step}-*.json"))
            return [_audited(answer) for answer in answers] if len(answers) >= world else None

        reported = self.wait(look, f"the audits of {world} ranks before step {step}")
        worst = {name: max(each.certificate[name] for each in reported) for name in ("lost", "repeated", "wrong")}
        again = max(each.certificate["recomputed"] for each in reported)
        return Verdict(**worst, recomputed=again, identical=len({each.digest for each in reported}) == 1)

    def wait(self, look: Callable[[], _Seen | None], awaited: str, timeout_s: float = READY_S) -> _Seen:
        return wait(look, awaited, self._processes, timeout_s=timeout_s, poll_s=_POLL_S)


def at_a_random_moment(chance: random.Random, step_s: float = 0.1) -> None:
    time.sleep(chance.uniform(0, step_s))


def strike(pids: Sequence[int], number: signal.Signals) -> float:
    """Sends a signal to all processes; returns the time before, on the monotonic clock."""
    at_s = time.monotonic()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return at_s


@contextmanager
def live_fleet(workers: int, recipe: Recipe, *, round_trip_ms: float = 0.0) -> Iterator[LiveFleet]:
    """A fleet that trains. Afterwards none of its processes is left."""
    with running(workers, recipe.command(workers), round_trip_ms=round_trip_ms) as fleet:
        fleet.steady(workers)
        yield fleet


@contextmanager
def running(workers: int, command: Sequence[str], *, round_trip_ms: float = 0.0) -> Iterator[LiveFleet]:
    """A stack with one job of `workers` workers, whose script also gets `--folder`."""
    with own_folder("tw-live-") as folder:
        yield _start(folder, workers, command, round_trip_ms)


def _start(folder: Path, workers: int, command: Sequence[str], round_trip_ms: float) -> LiveFleet:
    bus, far_bus, api = (free_port() for _ in range(3))
    first_store = _free_ports(_STORE_PORTS)
    stores = range(first_store, first_store + _STORE_PORTS)
    tradewind, nats_server = (str(Path(sys.executable).with_name(name)) for name in ("tradewind", "nats-server"))
    far = round_trip_ms > 0
    started = [
        start_logged(
            [nats_server, "-js", "-a", _NEAR, "-p", str(bus), "-sd", str(folder / "nats")], folder, "nats-server"
        )
    ]
    if far:
        routes = [Route(_FAR, far_bus, _NEAR, bus), *(Route(_FAR, port, _NEAR, port) for port in stores)]
        delay = ["--one-way-ms", str(round_trip_ms / 2), *map(str, routes)]
        started.append(start_logged([sys.executable, "-m", "benchmarks.delay_proxy", *delay], folder, "proxy"))
    near_url = f"nats://{_NEAR}:{bus}"
    workers_url = f"nats://{_FAR}:{far_bus}" if far else near_url
    started.append(
        start_logged(
            [
                *(tradewind, "master", "--nats-url", near_url, "--api-port", str(api)),
                *("--store-host", _FAR if far else _NEAR, "--store-bind", _NEAR),
                *("--store-ports", f"{stores[0]}-{stores[-1]}"),
            ],
            folder,
            "master",
        )
    )
    started.append(
        start_logged(
            [sys.executable, "-m", "benchmarks.live.late_cluster", str(folder / "gate")],
            folder,
            "cluster",
            {"TRADEWIND_NATS_URL": workers_url, "TRADEWIND_RUN_DIR": str(folder / "run")},
        )
    )
    fleet = LiveFleet(folder, f"http://{_NEAR}:{api}", started)
    fleet.wait(lambda: _has_clusters(fleet), "the master and the cluster-controller to be ready")
    fetch(f"http://{_NEAR}:{api}/v1/jobs", _job(folder, workers, command))
    return fleet


def _has_clusters(fleet: LiveFleet) -> bool:
    try:
        health = fetch(f"{fleet._api_url}/healthz")
    except StackFailed:
        return False
    return bool(health["ok"] and health["clusters"])


def _job(folder: Path, workers: int, command: Sequence[str]) -> dict[str, Any]:
    script, *arguments = command
    return {
        "name": JOB,
        "launch": {
            "script": script,
            "args": [*arguments, "--folder", str(folder)],
            "workdir": str(folder),
            "python": sys.executable,
            "env": {
                "OMP_NUM_THREADS": "1",
                "TRADEWIND_TRACE": str(folder / "traces"),
                "PYTHONPATH": str(_SCRIPTS.parents[1]),
            },
        },
        "workers": {"min": 1, "max": workers},
    }


def _free_ports(count: int) -> int:
    """The first of `count` consecutive free ports."""
    while True:
        first = free_port()
        with suppress(OSError, OverflowError):
            for port in range(first, first + count):
                for host in (_NEAR, _FAR):
                    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                        probe.bind((host, port))
            return first


def _audited(answer: Path) -> Audited:
    return msgspec.json.decode(answer.read_bytes(), type=Audited)

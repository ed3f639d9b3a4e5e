"""Starts and queries a bus, a master and player processes on this machine, and leaves none behind."""

import json
import math
import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from benchmarks.played.protocol import Cast, ClusterToPlay, Look, LookAtWorlds, Lose, Lost, Question, Seen, WorldSeen
from benchmarks.played.worker import RAW_SUBJECT
from benchmarks.stacks import StackFailed, answers, fetch, own_folder, read, start_logged, wait
from messages.ids import ClusterName, Generation, JobName, WorkerId
from runtime.children import free_port
from runtime.nats_server import binary

UP_S: Final = 60.0
_ANSWER_S: Final = 30.0
_POLL_S: Final = 0.05
_RAW_BYTES: Final = 1000
_STORE_PORTS: Final = 400
_CLUSTERS_IN_REGION: Final = 4
_ROOM: Final = 1.1
"""Most workers of a job in a cluster, as a multiple of its even share."""
_STORE: Final = """
import socket
class TCPStore:
    def __init__(self, host_name, port, is_master=False, wait_for_workers=True, timeout=None, master_listen_fd=-1):
        self.host, self.port = host_name, port
        self.listener = socket.socket(fileno=master_listen_fd) if is_master else None
    def check(self, keys): return True
"""
"""Replaces torch in the master's store processes: played ranks never meet, and 50 imports of torch take minutes."""

T = TypeVar("T")


class PlayerProcess:
    def __init__(self, cast: Cast, folder: Path, name: str) -> None:
        environment = {**os.environ, "TRADEWIND_LOG_LEVEL": "warning", "TMPDIR": str(folder)}
        with (folder / f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.played.player", msgspec.json.encode(cast).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )
        self._name = name
        self._rest = b""

    def ask(self, question: Question, answer: type[T]) -> T:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(msgspec.json.encode(question) + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise StackFailed(f"{self._name} has ended") from None
        return self.hear(answer, _ANSWER_S)

    def hear(self, answer: type[T], timeout_s: float) -> T:
        assert self.process.stdout is not None
        pipe, deadline_s = self.process.stdout.fileno(), time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            readable, _, _ = select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))
            if not readable:
                raise StackFailed(f"{self._name} did not answer within {timeout_s:.0f} s")
            if not (data := os.read(pipe, 1 << 16)):
                raise StackFailed(f"{self._name} has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line, type=answer)


class PlayedFleet:
    def __init__(self, nats_port: int, api_port: int, started: Sequence["subprocess.Popen[bytes]"]) -> None:
        self.api_port = api_port
        self.nats_pid = started[0].pid
        self.master_pid = started[1].pid
        self.players: list[PlayerProcess] = []
        self._started = list(started)
        self._url = f"http://127.0.0.1:{api_port}"
        self._raw_socket = socket.create_connection(("127.0.0.1", nats_port), timeout=_ANSWER_S)
        self._raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._raw_socket.sendall(b'CONNECT {"verbose":false}\r\n')
        self._raw_number = 0

    def play(self, cast: Cast, folder: Path) -> None:
        player = PlayerProcess(cast, folder, f"player-{len(self.players) + 1}")
        self.players.append(player)
        self._started.append(player.process)
        player.hear(Seen, UP_S)

    def submit(self, job: JobName, workers: int, *, sdk: bool, folder: Path) -> None:
        """Submits a job. Worlds settle quickly, so that a replacement is admitted before the next loss."""
        spec: dict[str, Any] = {
            "name": job,
            "launch": {"script": str(folder / "train.py")},
            "workers": {"min": 1, "max": workers, "settle_s": 1.0},
        }
        if sdk:
            spec["hyperparameters"] = {"global_batch": 4 * workers}
        fetch(f"{self._url}/v1/jobs", spec)

    def look(self) -> list[Seen]:
        return [player.ask(Look(), Seen) for player in self.players]

    def is_complete(self, jobs: Sequence[JobName], workers: int) -> bool:
        """True if each job has exactly `workers` workers, and all of them train in one world."""
        seen = self.look()
        for job in jobs:
            here = [state.jobs[job] for state in seen if job in state.jobs]
            ready = [each.ready for each in here]
            newest = max((generation for each in ready for generation in each), default=Generation(0))
            in_world = sum(each.get(newest, 0) for each in ready)
            if in_world != workers or sum(each.workers for each in here) != workers:
                return False
        return True

    def wait_complete(self, jobs: Sequence[JobName], workers: int, timeout_s: float) -> None:
        try:
            self._wait(lambda: self.is_complete(jobs, workers), "complete worlds", timeout_s, poll_s=0.25)
        except StackFailed as failure:
            raise StackFailed(f"{failure}: {self._how_far(jobs, workers)}") from None

    def lose(self, player: int, job: JobName) -> Lost:
        lost = self.players[player].ask(Lose(job), Lost | None)  # type: ignore[arg-type]
        if lost is None:
            raise StackFailed(f"no worker of job {job} was ready, so none could be lost")
        return lost

    def last_assigned_s(self, job: JobName, lost: Lost, timeout_s: float) -> float:
        """Time at which the last member of the first world without the lost worker received its assignment."""
        awaited = f"a world of job {job} without worker {lost.worker}"
        return self._wait(lambda: self._assigned(job, lost.generation, lost.worker), awaited, timeout_s)

    def _assigned(self, job: JobName, after: Generation, without: WorkerId) -> float | None:
        asked = LookAtWorlds(job, after, without)
        worlds = [world for player in self.players for world in player.ask(asked, list[WorldSeen])]
        for generation in sorted({world.generation for world in worlds}):
            parts = [world for world in worlds if world.generation == generation]
            if sum(part.heard for part in parts) == parts[0].members:
                return max(part.last_s for part in parts)
        return None

    def fan_out_s(self, timeout_s: float) -> float:
        """Seconds until the last played worker has received one message of 1 kB."""
        self._raw_number += 1
        payload = b"%08d" % self._raw_number + b"x" * (_RAW_BYTES - 8)
        began_s = time.monotonic()
        self._raw_socket.sendall(b"PUB %b %d\r\n%b\r\n" % (RAW_SUBJECT.encode(), len(payload), payload))
        last_s = self._wait(self._raw_heard, "the raw message to reach all workers", timeout_s)
        return last_s - began_s

    def _raw_heard(self) -> float | None:
        seen = self.look()
        for state in seen:
            workers = sum(job.workers for job in state.jobs.values())
            if workers and (state.raw_number, state.raw_heard) != (self._raw_number, workers):
                return None
        return max(state.raw_last_s for state in seen)

    def events(self, job: JobName | None = None) -> list[dict[str, Any]]:
        path = "/v1/events" if job is None else f"/v1/jobs/{job}/events"
        return [json.loads(line) for line in read(self._url + path).splitlines() if line]

    def _how_far(self, jobs: Sequence[JobName], workers: int) -> str:
        seen = self.look()
        connected = sum(each.workers for state in seen for each in state.jobs.values())
        ready = sum(count for state in seen for each in state.jobs.values() for count in each.ready.values())
        try:
            why = f"; status of job {jobs[0]}: {fetch(f'{self._url}/v1/jobs/{jobs[0]}')['why']}"
        except StackFailed as failure:
            why = f"; the master does not answer: {str(failure)[:200]}"
        return f"{connected} of {len(jobs) * workers} workers are connected and {ready} ready{why}"

    def _wait(self, look: Callable[[], T | None], awaited: str, timeout_s: float, poll_s: float = _POLL_S) -> T:
        return wait(look, awaited, self._started, timeout_s=timeout_s, poll_s=poll_s)


@contextmanager
def played_fleet(
    workers_in_job: int, clusters: int, *, players: int, sdk: bool, replace_s: float
) -> Iterator[tuple[PlayedFleet, Path]]:
    """A fleet without jobs. Afterwards none of its processes is left."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with own_folder("tw-scale-") as folder:
        (folder / "train.py").touch()
        nats_port, api_port = free_port(), free_port()
        nats_server = start_logged(
            [binary(), "-js", "-a", "127.0.0.1", "-p", str(nats_port), "-sd", str(folder / "nats")], folder, "nats"
        )
        wait(lambda: _accepts(nats_port), "the NATS server", [nats_server], timeout_s=UP_S, poll_s=_POLL_S)
        first_store = 20_000 + os.getpid() % 25 * _STORE_PORTS
        environment = {
            "TRADEWIND_NATS_URL": f"nats://127.0.0.1:{nats_port}",
            "TRADEWIND_API_PORT": str(api_port),
            "TRADEWIND_STORE_PORTS": f"{first_store}-{first_store + _STORE_PORTS - 1}",
            "PYTHONPATH": _torch_for_stores(folder / "stand-in"),
        }
        tradewind = str(Path(sys.executable).with_name("tradewind"))
        master = start_logged([tradewind, "master"], folder, "master", environment)
        url = f"http://127.0.0.1:{api_port}"
        wait(lambda: answers(f"{url}/healthz"), "the master", [nats_server, master], timeout_s=UP_S, poll_s=_POLL_S)
        fleet = PlayedFleet(nats_port, api_port, [nats_server, master])
        began_s = time.monotonic()
        share = 1 + math.ceil(_ROOM * workers_in_job / clusters)
        for number in range(min(players, clusters)):
            own = tuple(_cluster(index) for index in range(number, clusters, players))
            fleet.play(Cast(nats_port, own, share, sdk, replace_s, began_s), folder)
        heard = f"the master to hear {clusters} clusters"
        wait(
            lambda: fetch(f"{url}/healthz")["clusters"] >= clusters,
            heard,
            [nats_server, master],
            timeout_s=UP_S,
            poll_s=_POLL_S,
        )
        yield fleet, folder


def _cluster(index: int) -> ClusterToPlay:
    return ClusterToPlay(ClusterName(f"c{index:03d}"), f"region-{index // _CLUSTERS_IN_REGION}")


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def _torch_for_stores(folder: Path) -> str:
    package = folder / "torch" / "_C"
    package.mkdir(parents=True)
    for init in (package.parent, package):
        (init / "__init__.py").touch()
    (package / "_distributed_c10d.py").write_text(_STORE)
    return str(folder)

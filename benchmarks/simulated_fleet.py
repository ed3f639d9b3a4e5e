"""A stack for benchmarks of the control plane as processes of this machine.

It has a bus, the simulator, a master with a fleet of many zones in two regions, and one job with nodes and a
worker-agent on each that never trains. The simulator's own delays, such as the time until Kubernetes forgets a node,
are 0: the benchmarks measure how fast Tradewind reacts, not how fast the cloud reports.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from benchmarks.stacks import StackFailed, answers, fetch, own_folder, read, start_logged, wait
from runtime.children import free_port

JOB: Final = "held"
READY_S: Final = 180.0
_COOLDOWN_S: Final = 120.0
"""Seconds for which a zone that preempted a node is the last choice. There are enough zones without cooldown."""
_REGIONS: Final = {"us": "us-central1", "eu": "europe-west4"}
_ZONES: Final = tuple(
    (name, f"{region}-{letter}") for letter in ascii_lowercase[:20] for name, region in _REGIONS.items()
)
PACE_S: Final = _COOLDOWN_S / (len(_ZONES) - 2)
_QUIET_S: Final = 0.6
"""The master polls an operation every quarter of a second: no call for longer means that none is under way."""
_POLL_S: Final = 0.25
"""Seconds between two polls; they use the processes that are measured."""
_SIMULATOR: Final = {
    "SPEED": "100",
    "FORGET_S": "0",
    # Ten real seconds, as in the real cloud: the master abandons a slot before it is filled again.
    "RECREATE_S": "1000",
    "REGION_NODE_MONITOR_S": "0",
    "CALLS_PER_MINUTE": "0",
    # The benchmarks measure a fleet of many zones, not limits by quotas.
    "DEFAULT_QUOTA": "10000",
    "QUOTAS": ",".join(
        f"{metric}=100000"
        for metric in ("CPUS", "SSD_TOTAL_GB", "IN_USE_ADDRESSES", "CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS")
    ),
}
_Seen = TypeVar("_Seen")


class Call(Struct, frozen=True):
    """A call that the simulator received, with its time of arrival."""

    number: int
    at_s: float
    monotonic_s: float
    api: str
    method: str
    target: str
    detail: str


class Node(Struct, frozen=True):
    name: str
    pool: str
    zone: str
    phase: str


class SimulatedFleet:
    def __init__(self, control_url: str, master_url: str, processes: Sequence["subprocess.Popen[bytes]"]) -> None:
        self._control_url = control_url
        self._master_url = master_url
        self._processes = processes
        self._last_call: Call | None = None

    def preempt(self, node: str, notice_s: float) -> Call:
        """Preempts a node; returns the call as the simulator recorded it."""
        answer = fetch(f"{self._control_url}/control/preempt", {"node": node, "notice_s": notice_s})
        number: int = answer["call"]
        return next(call for call in self.calls(number - 1, "control") if call.number == number)

    def calls(self, since: int, api: str) -> list[Call]:
        return msgspec.convert(fetch(f"{self._control_url}/calls?since={since}&api={api}"), list[Call])

    def events(self) -> list[dict[str, Any]]:
        lines = read(f"{self._master_url}/v1/jobs/{JOB}/events").splitlines()
        return [json.loads(line) for line in lines if line]

    def quiet(self, nodes: int, *, workers: int = 0) -> list[Node]:
        """Waits until the job has its nodes and at least `workers` workers, and no operation is in flight."""
        awaited = f"{nodes} nodes, {workers} workers and no operation in flight"
        return self.wait(lambda: self._when_quiet(nodes, workers), awaited)

    def _when_quiet(self, nodes: int, workers: int) -> list[Node] | None:
        there = fetch(f"{self._control_url}/inventory?label=tradewind-job={JOB}")
        found = msgspec.convert(there["nodes"], list[Node])
        for call in self.calls(self._last_call.number if self._last_call else 0, "gke"):
            self._last_call = call
        asked_s = self._last_call.monotonic_s if self._last_call else 0.0
        if there["operations"] or time.monotonic() - asked_s < _QUIET_S:
            return None
        if len(found) != nodes or any(node.phase != "running" for node in found):
            return None
        known = fetch(f"{self._master_url}/v1/jobs/{JOB}").get("workers", [])
        return found if sum(worker["presence"] == "alive" for worker in known) >= workers else None

    def are_clusters_ready(self) -> bool:
        events = map(json.loads, read(f"{self._master_url}/v1/events").splitlines())
        return {event["fields"]["cluster"] for event in events if event["kind"] == "cluster_ready"} == {*_REGIONS}

    def wait(self, look: Callable[[], _Seen | None], awaited: str, timeout_s: float = READY_S) -> _Seen:
        return wait(look, awaited, self._processes, timeout_s=timeout_s, poll_s=_POLL_S)


@contextmanager
def simulated_fleet(nodes: int) -> Iterator[SimulatedFleet]:
    """A fleet with one job of `nodes` nodes. Afterwards none of its processes is left."""
    with own_folder("tw-bench-") as folder:
        yield _start(folder, nodes)


def _start(folder: Path, nodes: int) -> SimulatedFleet:
    bus, grpc, control, api = (free_port() for _ in range(4))
    tradewind = str(Path(sys.executable).with_name("tradewind"))
    nats_server = str(Path(sys.executable).with_name("nats-server"))
    (folder / "fleet.yaml").write_text(json.dumps(fleet_file(grpc, control)))
    (folder / "train.py").touch()
    (folder / "job.yaml").write_text(json.dumps(_job(nodes, _idle_interpreter(folder))))
    started = [
        start_logged(
            [nats_server, "-js", "-a", "127.0.0.1", "-p", str(bus), "-sd", str(folder / "nats")], folder, "nats-server"
        ),
        start_logged(
            [
                *(sys.executable, "-m", "simulator", "--write-credentials", str(folder / "key.json")),
                *("--grpc-port", str(grpc), "--http-port", str(control), "--region-run-dir", str(folder / "r")),
            ],
            folder,
            "simulator",
            {f"TRADEWIND_SIMULATOR_{key}": value for key, value in _SIMULATOR.items()},
        ),
    ]
    fleet = SimulatedFleet(f"http://127.0.0.1:{control}", f"http://127.0.0.1:{api}", started)
    fleet.wait(lambda: answers(f"http://127.0.0.1:{control}/healthz"), "the simulator to answer")
    environment = {
        "TRADEWIND_NATS_URL": f"nats://127.0.0.1:{bus}",
        "TRADEWIND_API_PORT": str(api),
        "TRADEWIND_GKE_POLL_MOST_S": "0.25",
    }
    started.append(
        start_logged([tradewind, "master", "--fleet", str(folder / "fleet.yaml")], folder, "master", environment)
    )
    fleet.wait(lambda: answers(f"http://127.0.0.1:{api}/healthz"), "the master to answer")
    fleet.wait(fleet.are_clusters_ready, "the clusters to be ready")
    submit = start_logged(
        [tradewind, "submit", str(folder / "job.yaml")],
        folder,
        "submit",
        {"TRADEWIND_API_URL": f"http://127.0.0.1:{api}"},
    )
    if submit.wait(READY_S) != 0:
        raise StackFailed("tradewind submit failed")
    return fleet


def fleet_file(grpc_port: int, control_port: int) -> dict[str, Any]:
    clusters = [
        {"name": name, "location": f"{region}-a", "zones": [zone for of, zone in _ZONES if of == name]}
        for name, region in _REGIONS.items()
    ]
    kind = {"machine_type": "g2-standard-8", "accelerator": "nvidia-l4", "max_nodes": 16}
    return {
        "name": "benchmark",
        "cloud": {
            "kind": "gke",
            "project": "tradewind",
            "credentials": "key.json",
            "endpoints": {
                "gke": f"127.0.0.1:{grpc_port}",
                "insecure": True,
                "compute": f"http://127.0.0.1:{control_port}/compute/v1",
            },
        },
        "clusters": clusters,
        "system_pool": {"machine_type": "e2-standard-2"},
        "offers": [{"cluster": name, "zone": zone, **kind} for name, zone in _ZONES],
        "pods": {"image": "tradewind:local", "pull_policy": "Never"},
    }


def _job(nodes: int, python: str) -> dict[str, Any]:
    """A planned job with gradients so small that no zone is too far."""
    return {
        "name": JOB,
        "launch": {"script": "train.py", "python": python},
        "workers": {"min": 1, "max": nodes},
        "hyperparameters": {"global_batch": 4 * nodes},
        "capacity": {"objective": "throughput"},
        "profile": {"gradient_bytes": 10_000, "compute": {"L4": {"seconds_per_sample": 0.1}}},
    }


def _idle_interpreter(folder: Path) -> str:
    """A program that sleeps instead of Python, because warm hosts would use the cores that are measured."""
    program = folder / "idle"
    program.write_text("#!/bin/sh\nexec sleep 86400\n")
    program.chmod(0o755)
    return str(program)

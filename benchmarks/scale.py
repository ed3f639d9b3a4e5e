"""What a master costs and how fast it answers with thousands of workers in one job.

The nats-server and the master are real processes. A few processes play cluster-controllers and workers: each worker has
its own connection to the bus, sends its heartbeats, and answers halts at once, so the time that trainers need to park
is not included. The controllers run the production code.

A loss runs from the closing of a worker's connection, which its controller reports as proof, to the moment at which the
last member of the next world has its assignment. For comparison, the same run sends one message of 1 kB to the same
connections.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

import msgspec
from msgspec import Struct

from benchmarks import report
from benchmarks.played.fleet import PlayedFleet, played_fleet
from benchmarks.played.protocol import Lost, Seen
from benchmarks.played.samples import ApiProbe, Latency, cpu_s, machine, rss_mb
from benchmarks.played.worker import PLAYED
from benchmarks.report import Limit, Result, percentile
from benchmarks.stacks import StackFailed
from messages.ids import JobName

DESCRIPTION: Final = "cost of a master and time of a loss with thousands of played workers"
_NAME: Final = "scale"
_WORKERS: Final = (1000, 3000, 10_000)
_JOBS: Final = (1, 50)
_SDK_WORKERS: Final = 1000
_REPLACE_S: Final = 1.0
_RAW_ROUNDS: Final = 10
_STEADY_S: Final = 20.0
_SETTLE_S: Final = 3.0
"""Seconds between the first world and the first measurement."""
_BUSY: Final = 0.9
"""CPU share of the machine above which a steady state does not count, because processes wait for each other."""
_PROBES_PER_S: Final = 3.0
_SAMPLE_MEMORY_S: Final = 10.0
_CPU_SHARE: Final = 0.25
_MEMORY_GROWTH: Final = 0.1
_LOSS_BEYOND_RAW_MS: Final = ((3000, 150.0), (10_000, 300.0))
"""Workers, and the time that a loss may take above three times the raw message with up to so many workers."""


class Setup(Struct, frozen=True):
    """The size of a round: workers in all, spread evenly over the jobs."""

    workers: int
    jobs: int
    sdk: bool

    @property
    def name(self) -> str:
        return f"{self.jobs}x{self.workers // self.jobs}{' sdk' if self.sdk else ''}"


class Options(Struct, frozen=True):
    clusters: int
    players: int
    losses: int
    minutes: float
    steady_s: float


class Steady(Struct, frozen=True):
    """Usage of a master while nothing changes."""

    cpu_share: float
    """Share of one core that the master uses."""
    machine_share: float
    """Share of all cores that all processes use."""
    bytes_in_per_worker_s: float
    bytes_out_per_worker_s: float
    heartbeats_per_s: float

    @property
    def counts(self) -> bool:
        return self.machine_share <= _BUSY


class Change(Struct, frozen=True):
    """One lost worker."""

    worker: str
    took_ms: float
    cpu_s: float
    """CPU time of the master until the last assignment arrived."""
    bytes_in_per_worker: float
    bytes_out_per_worker: float


class Round(Struct, frozen=True, omit_defaults=True):
    """Figures of one round. A figure is None if the round failed before; see `problem`."""

    setup: Setup
    formed_s: float | None = None
    """Seconds from the first submit to the first complete world of each job."""
    steady: Steady | None = None
    asked: Steady | None = None
    """The same while the API gets a few requests per second."""
    raw_ms: tuple[float, ...] = ()
    changes: tuple[Change, ...] = ()
    rss_mb: tuple[float, ...] = ()
    """Memory of the master from the first complete world to the end."""
    api: Mapping[str, Latency] = {}
    leases_lost: int | None = None
    healthy_removed: int | None = None
    connections_lost: int = 0
    problem: str | None = None

    def loss_ms(self, share: float) -> float | None:
        return percentile([change.took_ms for change in self.changes], share)

    @property
    def raw_p50_ms(self) -> float | None:
        return percentile(self.raw_ms, 50)

    def summary(self) -> dict[str, Any]:
        """The figures as a row of the table."""
        changes = self.changes
        mean = {
            field: sum(getattr(change, field) for change in changes) / len(changes) if changes else None
            for field in ("cpu_s", "bytes_in_per_worker", "bytes_out_per_worker")
        }
        row: dict[str, Any] = {
            "round": self.setup.name,
            "formed_s": self.formed_s,
            "cpu_share": self.steady.cpu_share if self.steady else None,
            "cpu_share_asked": self.asked.cpu_share if self.asked else None,
            "machine_share": self.steady.machine_share if self.steady else None,
            "raw_p50_ms": self.raw_p50_ms,
            "raw_p99_ms": percentile(self.raw_ms, 99),
            "loss_p50_ms": self.loss_ms(50),
            "loss_p99_ms": self.loss_ms(99),
            "loss_cpu_s": mean["cpu_s"],
            "change_bytes_in": mean["bytes_in_per_worker"],
            "change_bytes_out": mean["bytes_out_per_worker"],
            "rss_begin_mb": self.rss_mb[0] if self.rss_mb else None,
            "rss_end_mb": self.rss_mb[-1] if self.rss_mb else None,
        }
        for name, latency in self.api.items():
            row |= {f"{name}_p50_ms": latency.p50_ms, f"{name}_p99_ms": latency.p99_ms}
        return row | {
            "leases_lost": self.leases_lost,
            "healthy_removed": self.healthy_removed,
            "problem": self.problem or "",
        }


def limits_of(done: Round, options: Options) -> Iterator[Limit]:
    setup, name = done.setup, done.setup.name
    if setup.workers >= max(_WORKERS) and not setup.sdk:
        counted = done.steady is not None and done.steady.counts
        share = done.steady.cpu_share if done.steady is not None and counted else None
        yield Limit(f"{name} cpu_share", share, _CPU_SHARE)
    if options.losses and setup.jobs == 1 and setup.workers > _SDK_WORKERS:
        beyond_ms = next((ms for workers, ms in _LOSS_BEYOND_RAW_MS if setup.workers <= workers), None)
        if beyond_ms is not None:
            yield Limit(f"{name} loss_p50_ms", done.loss_ms(50), round(3 * (done.raw_p50_ms or 0.0) + beyond_ms, 1))
    yield Limit(f"{name} healthy_removed", done.healthy_removed, 0)
    yield Limit(f"{name} leases_lost", done.leases_lost, 0)
    if options.minutes:
        growth = done.rss_mb[-1] / done.rss_mb[0] - 1 if len(done.rss_mb) > 1 else None
        yield Limit(f"{name} memory_growth", growth, _MEMORY_GROWTH)


class Measurement:
    """Measures one round step by step; figures measured before a failure stay."""

    def __init__(self, setup: Setup, options: Options) -> None:
        self._setup = setup
        self._options = options
        self._jobs = tuple(JobName(f"job-{number}") for number in range(setup.jobs))
        self._per_job = setup.workers // setup.jobs
        self._patience_s = 30.0 + setup.workers / 100
        self.done = Round(setup)

    def run(self) -> Round:
        setup, options = self._setup, self._options
        try:
            with played_fleet(
                self._per_job, options.clusters, players=options.players, sdk=setup.sdk, replace_s=_REPLACE_S
            ) as (fleet, folder):
                began_s = time.monotonic()
                self._say(f"{options.clusters} clusters are up, submitting")
                for job in self._jobs:
                    fleet.submit(job, self._per_job, sdk=setup.sdk, folder=folder)
                fleet.wait_complete(self._jobs, self._per_job, 2 * self._patience_s)
                self._note(formed_s=round(time.monotonic() - began_s, 2))
                self._say(f"formed after {self.done.formed_s} s")
                self._measure(fleet)
        except StackFailed as failure:
            message, _, tails = str(failure).partition("\n")
            print(tails, file=sys.stderr, flush=True)
            self._note(problem=message)
            self._say(f"failed: {message}")
        return self.done

    def _measure(self, fleet: PlayedFleet) -> None:
        paths = {
            "status": f"/v1/jobs/{self._jobs[0]}",
            "events": f"/v1/jobs/{self._jobs[0]}/events?tail=100",
            "healthz": "/healthz",
        }
        probe = ApiProbe(fleet.api_port, paths, _PROBES_PER_S)
        time.sleep(_SETTLE_S)
        self._note(rss_mb=(round(rss_mb(fleet.master_pid), 1),))
        try:
            with probe.running():
                self._measure_raw(fleet)
                with probe.paused():
                    self._note(steady=self._steady(fleet))
                self._note(asked=self._steady(fleet))
                lost = self._lose_all(fleet)
                self._stay(fleet)
        finally:
            self._note(
                rss_mb=(*self.done.rss_mb, round(rss_mb(fleet.master_pid), 1)),
                api=probe.latencies(),
                connections_lost=sum(state.connections_lost for state in fleet.look()),
            )
        self._judge(fleet, lost)

    def _measure_raw(self, fleet: PlayedFleet) -> None:
        took_s = [fleet.fan_out_s(self._patience_s) for _ in range(_RAW_ROUNDS + 1)][1:]
        self._note(raw_ms=tuple(round(each * 1000, 2) for each in took_s))
        self._say(f"raw fan-out p50 {self.done.raw_p50_ms} ms")

    def _steady(self, fleet: PlayedFleet) -> Steady:
        cpu_before, machine_before, before = cpu_s(fleet.master_pid), machine(), _total(fleet.look())
        began_s = time.monotonic()
        time.sleep(self._options.steady_s)
        took_s, after = time.monotonic() - began_s, _total(fleet.look())
        steady = Steady(
            round((cpu_s(fleet.master_pid) - cpu_before) / took_s, 4),
            round(machine().share_since(machine_before), 3),
            round((after.bytes_in - before.bytes_in) / took_s / self._setup.workers, 1),
            round((after.bytes_out - before.bytes_out) / took_s / self._setup.workers, 1),
            round((after.heartbeats_heard - before.heartbeats_heard) / took_s, 1),
        )
        discarded = "" if steady.counts else f": discarded, because the machine is used above {_BUSY:.0%}"
        self._say(f"the master uses {steady.cpu_share:.1%} of a core, all {steady.machine_share:.0%}{discarded}")
        return steady

    def _lose_all(self, fleet: PlayedFleet) -> list[Lost]:
        lost: list[Lost] = []
        for number in range(self._options.losses):
            job = self._jobs[number % len(self._jobs)]
            fleet.wait_complete(self._jobs, self._per_job, self._patience_s)
            before, cpu_before = _total(fleet.look()), cpu_s(fleet.master_pid)
            lost.append(fleet.lose(number % len(fleet.players), job))
            last_s = fleet.last_assigned_s(job, lost[-1], self._patience_s)
            after = _total(fleet.look())
            change = Change(
                lost[-1].worker,
                round((last_s - lost[-1].at_s) * 1000, 2),
                round(cpu_s(fleet.master_pid) - cpu_before, 3),
                round((after.bytes_in - before.bytes_in) / self._per_job, 1),
                round((after.bytes_out - before.bytes_out) / self._per_job, 1),
            )
            self._note(changes=(*self.done.changes, change))
            self._say(f"loss {number + 1} of {self._options.losses}: {change.took_ms} ms")
        fleet.wait_complete(self._jobs, self._per_job, self._patience_s)
        return lost

    def _stay(self, fleet: PlayedFleet) -> None:
        until_s = time.monotonic() + self._options.minutes * 60
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _SAMPLE_MEMORY_S))
            self._note(rss_mb=(*self.done.rss_mb, round(rss_mb(fleet.master_pid), 1)))
            self._say(f"{left_s:.0f} s to go, the master has {self.done.rss_mb[-1]} MB")

    def _judge(self, fleet: PlayedFleet, lost: Sequence[Lost]) -> None:
        """Counts removals of healthy workers in the master's events, without those that the player ended."""
        victims = {each.worker for each in lost}
        gone = [
            event
            for job in self._jobs
            for event in fleet.events(job)
            if event["kind"] in ("worker_gone", "worker_unfit")
            and event["fields"]["worker"] not in victims
            and not event["why"].startswith(PLAYED)
        ]
        terms = sum(event["kind"] == "master_started" for event in fleet.events())
        self._note(healthy_removed=len(gone), leases_lost=terms - 1)
        if gone:
            self._say(f"the master removed {len(gone)} healthy workers; reason of the first: {gone[0]['why']}")

    def _note(self, **figures: object) -> None:
        self.done = msgspec.structs.replace(self.done, **figures)

    def _say(self, text: str) -> None:
        print(f"{self._setup.name}: {text}", file=sys.stderr, flush=True)


class _Total(Struct, frozen=True):
    bytes_in: int
    bytes_out: int
    heartbeats_heard: int


def _total(seen: Sequence[Seen]) -> _Total:
    return _Total(
        sum(state.bytes_in for state in seen),
        sum(state.bytes_out for state in seen),
        sum(state.heartbeats_heard for state in seen),
    )


def result_of(rounds: Sequence[Round], options: Options) -> Result:
    limits = tuple(limit for done in rounds for limit in limits_of(done, options))
    ok = all(limit.is_met for limit in limits) and not any(done.problem for done in rounds)
    first = limits[0] if limits else Limit("", None, 0.0)
    return Result(_NAME, "", first.ours, None, None, first.target, ok, tuple(map(msgspec.to_builtins, rounds)), limits)


def _print(rounds: Sequence[Round], result: Result) -> None:
    for done in rounds:
        for figure, value in done.summary().items():
            if value is not None and value != "":
                print(f"{figure:>18}  {f'{value:.3f}' if isinstance(value, float) else value}")
        print()
    for limit in result.limits:
        print(f"{limit.figure}: {limit.ours} (at most {limit.target:g}): {'ok' if limit.is_met else 'MISSED'}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{_NAME}", description=__doc__)
    parser.add_argument("--workers", type=_numbers, help="workers in all, e.g. 1000,3000 (default: 1000,3000,10000)")
    parser.add_argument("--jobs", type=_numbers, default=_JOBS, help="jobs that share the workers evenly, e.g. 1,50")
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--players", type=int, default=2, help="processes that play clusters and workers")
    parser.add_argument("--sdk", action="store_true", help="report like trainers that use the SDK")
    parser.add_argument("--losses", type=int, default=20, help="number of losses of one worker")
    parser.add_argument("--minutes", type=float, default=0.0, help="minutes to watch the master's memory at the end")
    parser.add_argument("--steady-s", type=float, default=_STEADY_S, help="seconds over which CPU is measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    options = Options(given.clusters, given.players, given.losses, given.minutes, given.steady_s)
    setups = [Setup(workers, jobs, given.sdk) for jobs, workers in product(given.jobs, given.workers or _WORKERS)]
    if given.workers is None and not given.sdk:
        setups.append(Setup(_SDK_WORKERS, 1, sdk=True))
    if any(setup.workers < setup.jobs or setup.workers % setup.jobs for setup in setups):
        parser.error("--workers must be multiples of --jobs")
    if given.clusters < 1 or given.players < 1 or given.losses < 0:
        parser.error("--clusters and --players must be at least 1, --losses at least 0")

    rounds = list(_rounds(setups, options))
    result = result_of(rounds, options)
    if given.json:
        return report.publish(result, as_json=True)
    _print(rounds, result)
    return 0 if result.ok else 1


def _rounds(setups: Sequence[Setup], options: Options) -> Iterator[Round]:
    """Measures all setups; skips larger ones after a failure with the same number of jobs."""
    failed: dict[tuple[int, bool], int] = {}
    for setup in setups:
        kind = setup.jobs, setup.sdk
        if kind in failed and setup.workers > failed[kind]:
            yield Round(setup, problem=f"skipped, because the round with {failed[kind]} workers failed")
            continue
        done = Measurement(setup, options).run()
        if done.problem:
            failed[kind] = setup.workers
        yield done


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    raise SystemExit(main())

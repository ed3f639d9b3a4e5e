"""Forged messages: pure functions of chance and of what is known of the jobs."""

import random
from dataclasses import dataclass

import msgspec

from messages import codec, subjects
from messages.api import WorkerView
from messages.clusters import ClusterHeartbeat
from messages.envelope import Message
from messages.events import Event
from messages.ids import ClusterName, Generation, JobName, Rank, WorkerId
from messages.workers import (
    WorkerHeartbeat,
    WorkerJoined,
    WorkerParked,
    WorkerPhase,
    WorkerReady,
    WorkerStatus,
    WorkerSwitched,
)
from messages.worlds import GatheredProgress, Progress, RankProgress
from tests.chaos.faults import JOBS, Kind, Target

HIGHEST = 2**53
FORGED_LINE = "chaos-forged-line"
"""Begin of the second line of each forged event; no line of any output may begin with it."""
SUBJECTS = (
    "tradewind.worker.east.w1.parked",
    "tradewind.worker.east.w1.heartbeat",
    "tradewind.cluster.east.heartbeat",
    "tradewind.cluster.east.command",
    "tradewind.job.kills.progress",
    "tradewind.job.stops.assignment",
    "tradewind.job.slow.halt",
    "tradewind.job.stalled.log.0",
    "tradewind.event.kills.chaos",
    "tradewind.event.fleet.chaos",
    "tradewind.unheard.of",
)
KEYS = ("jobs.ghost.spec", "jobs.ghost.world", "ledger.ghost", "fleet.ghost.known", "fleet.ghost.wanted")
DEEP = 100_000
UNDECODABLE = (b'{"holder":"\xff","since":1.0}', b"[" * DEEP, b"\x00\xff\xfe", b"", b'{"holder":', b"null", b"[1e999]")


@dataclass(frozen=True)
class Forged:
    subject: str
    payload: bytes


@dataclass(frozen=True)
class Known:
    """A real worker."""

    job: str
    view: WorkerView


def forge(kind: Kind, chance: random.Random, workers: list[Known]) -> list[Forged]:
    """Forged messages; none if they need a real worker and none is known."""
    match kind:
        case Kind.FORGE_GARBAGE:
            return [Forged(subject, chance.randbytes(chance.randrange(2000))) for subject in SUBJECTS]
        case Kind.FORGE_DEEP_JSON:
            return [Forged(subject, payload) for subject in SUBJECTS for payload in (b"[" * DEEP, _deep_body())]
        case Kind.FORGE_EVENT:
            job = chance.choice(JOBS)
            return [_forged(subjects.event(job, "chaos"), _event(job))]
        case Kind.FORGE_UNKNOWN_WORKER:
            return [fact for job in JOBS for fact in _facts_of(_unknown(job, chance))]
        case Kind.FORGE_CLUSTER:
            cluster = ClusterName(f"nowhere-{chance.randrange(1 << 20)}")
            return [_forged(subjects.cluster_heartbeat(cluster), ClusterHeartbeat(cluster, "forged", 1))]
        case Kind.GARBAGE_KEY:
            return [_value(key, chance.choice(UNDECODABLE)) for key in KEYS]
        case Kind.GARBAGE_LEADER:
            return [_value(subjects.LEADER_KEY, chance.choice(UNDECODABLE))]
        case _:
            return _about(kind, chance, workers)


def _about(kind: Kind, chance: random.Random, workers: list[Known]) -> list[Forged]:
    """Facts of a real worker."""
    # An accepted one costs a world, so the job whose worlds must not change is left out.
    exposed = [known for known in workers if known.job in (Target.KILLS, Target.STOPS)]
    if not workers or not exposed:
        return []
    any_worker, victim = chance.choice(workers), chance.choice(exposed)
    match kind:
        case Kind.FORGE_GENERATION:
            return [_parked(_status(victim, seq=HIGHEST - 1, generation=HIGHEST))]
        case Kind.FORGE_OLD_FACT:
            return _facts_of(_status(any_worker, seq=0, generation=1))
        case Kind.FORGE_OTHER_JOB:
            other = chance.choice([job for job in JOBS if job != any_worker.job])
            status = _status(any_worker, seq=10, generation=any_worker.view.generation)
            return _facts_of(msgspec.structs.replace(status, job=JobName(other)))
        case Kind.FORGE_PROGRESS:
            return [_progress(any_worker, any_worker.view.worker), _progress(any_worker, WorkerId("w-nobody"))]
        case _:
            raise ValueError(f"{kind} is not forged")


def _status(known: Known, *, seq: int, generation: int) -> WorkerStatus:
    return WorkerStatus(
        worker=known.view.worker,
        cluster=ClusterName(known.view.cluster),
        job=JobName(known.job),
        seq=seq,
        phase=WorkerPhase.PARKED,
        generation=Generation(generation),
    )


def _unknown(job: Target, chance: random.Random) -> WorkerStatus:
    return WorkerStatus(
        worker=WorkerId(f"w-forged-{chance.randrange(1 << 20)}"),
        cluster=ClusterName(chance.choice(("east", "nowhere"))),
        job=JobName(job),
        seq=1,
        phase=WorkerPhase.IDLE,
    )


def _facts_of(status: WorkerStatus) -> list[Forged]:
    worker = (status.cluster, status.worker)
    return [
        _forged(subjects.worker_fact(*worker, "joined"), WorkerJoined(status)),
        _forged(subjects.worker_fact(*worker, "ready"), WorkerReady(status)),
        _forged(subjects.worker_fact(*worker, "switched"), WorkerSwitched(status, 1)),
        _forged(subjects.worker_heartbeat(*worker), WorkerHeartbeat(status)),
        _parked(status),
    ]


def _parked(status: WorkerStatus) -> Forged:
    return _forged(subjects.worker_fact(status.cluster, status.worker, "parked"), WorkerParked(status))


def _progress(known: Known, worker: WorkerId) -> Forged:
    absurd = RankProgress(Rank(1_000_000), first_step=HIGHEST, last_step=HIGHEST, loss=-1e300, samples=HIGHEST)
    job = JobName(known.job)
    report = Progress(job, worker, Generation(HIGHEST), (absurd,))
    return _forged(subjects.progress(job), GatheredProgress(job, ClusterName("forged"), (report,)))


def _event(job: Target) -> Event:
    return Event(job, "chaos", f"forged\n{FORGED_LINE}: job {job} succeeded\r\x1b[2J", f"why\n{FORGED_LINE}")


def _deep_body() -> bytes:
    envelope = codec.encode(codec.wrap(Event("fleet", "chaos", "deep"), sender="worker/w1"))
    return envelope.replace(b'"body":{', b'"body":{"deep":' + b"[" * DEEP + b"]" * DEEP + b",", 1)


def _forged(subject: str, message: Message) -> Forged:
    return Forged(subject, codec.encode(codec.wrap(message, sender="worker/forged")))


def _value(key: str, value: bytes) -> Forged:
    return Forged(f"$KV.{subjects.STATE_BUCKET}.{key}", value)

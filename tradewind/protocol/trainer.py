"""What a trainer that lives through changes and its worker-agent say to each other.

The agent listens on the Unix stream socket named by TRADEWIND_TRAINER_SOCKET; each message is one JSON object on one
line, and `type` names it. Unknown fields are ignored.

Trainer → agent

    attach    {generation, rank, local_rank, pid}
              First: the generation and rank under which it was forked.
    status    {rank, generation, parked, done, held, active, finished, broken, waits, terms, certificate,
               waiting | null, overdue, step_s, paused, paused_at}
              All that it is, whenever something of it changes but `done` and `held` alone. See TrainerStatus in
              messages/workers.py. `certificate` is there once it has finished.
    progress  {generation, rank, reports: [{step, loss | null, nonfinite, samples | null, at}, …],
               counted: {nonfinite, skipped},
               measured: {steps, samples, seconds, computed_s, waited_s, longest_s, gradient_bytes,
                          global_batch}}
              Steps that every rank has. `nonfinite`, if it is there: the loss is not absent, it is NaN or infinite.
              `counted`: such steps of the whole run so far, and those that were not applied. `measured` is optional:
              what this trainer's steps were like of late, and what is the same in each. See StepsMeasured in
              messages/measured.py.
    checkpoint
              {step, folder, at}
              It has written one: `step` is computed next from it, `at` is in Unix seconds.

Agent → trainer

    assign    {generation, rank, world_size, entry, address, store: {host, port, prefix}, leaves,
               peers, previous, resume, source, laggards, held}
              `entry` is "start" for a trainer that was forked into this world, else "planned" or "repair". `address` is
              where peers reach this trainer; `peers` are the addresses of all members. `leaves`: it is in the world
              before and not in this one. The rest is as in HotWorld in messages/worlds.py.
    halt      {generation}
              Every world below is dead: leave its collectives and tell `parked`.
    lease     {valid_s}
              For so long nobody else can have been given this trainer's place.
    locate    {}
              Others wait for some rank: tell the status again.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

SOCKET: Final = "TRADEWIND_TRAINER_SOCKET"
INVITED: Final = "TRADEWIND_INVITED"

Entry = Literal["start", "planned", "repair"]
Ranges = tuple[tuple[int, int], ...]
"""Positions in the global batch of one step, each from the first to before the last."""


@dataclass(frozen=True, slots=True)
class Store:
    host: str
    port: int
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Assign:
    generation: int
    rank: int
    world_size: int
    entry: Entry
    store: Store
    address: str = "127.0.0.1"
    leaves: bool = False
    peers: tuple[str, ...] = ()
    previous: tuple[int, ...] = ()
    resume: int = 0
    source: int = 0
    laggards: tuple[int, ...] = ()
    held: tuple[Ranges, ...] = ()


@dataclass(frozen=True, slots=True)
class Halt:
    generation: int


@dataclass(frozen=True, slots=True)
class Lease:
    valid_s: float


@dataclass(frozen=True, slots=True)
class Locate:
    pass


Order = Assign | Halt | Lease | Locate


@dataclass(frozen=True, slots=True)
class Status:
    rank: int = 0
    generation: int = 0
    parked: int = 0
    done: int = 0
    held: Ranges = ()
    active: bool = False
    finished: bool = False
    broken: int = 0
    waits: str = ""
    resting: bool = False
    terms: str = ""
    certificate: Mapping[str, int | str] | None = None
    waiting: int | None = None
    overdue: bool = False
    step_s: float = 0.0
    paused: str = ""
    paused_at: float = 0.0


@dataclass(frozen=True, slots=True)
class StepsCounted:
    """Steps of the whole run so far."""

    nonfinite: int = 0
    skipped: int = 0


NOTHING_COUNTED: Final = StepsCounted()


@dataclass(frozen=True, slots=True)
class Lap:
    """One step of one rank."""

    seconds: float
    """All of it: what was neither computed nor waited for is the optimizer's update, and the reading of samples."""
    computed_s: float
    """From the batch handed out to its gradients being there."""
    waited_s: float
    """In the sum: for other ranks, and for the network."""
    is_whole: bool
    """Nothing disturbed it."""


@dataclass(frozen=True, slots=True)
class Means:
    """Of one step of late."""

    steps: int = 0
    """How many there were, all in all."""
    samples: float = 0.0
    seconds: float = 0.0
    computed_s: float = 0.0
    waited_s: float = 0.0
    longest_s: float = 0.0
    """The longest of the last steps, also of those that something disturbed."""


@dataclass(frozen=True, slots=True)
class StepReport:
    step: int
    loss: float | None
    samples: int
    at: float
    lap: Lap | None = None
    counted: StepsCounted = NOTHING_COUNTED


@dataclass(frozen=True, slots=True)
class StepSize:
    """What is the same in every step."""

    gradient_bytes: int
    global_batch: int


@dataclass(frozen=True, slots=True)
class Birth:
    """The place under which the host forked this process."""

    generation: int
    rank: int
    local_rank: int
    pid: int = field(default=0)


def attach(birth: Birth) -> bytes:
    return _line(
        type="attach", generation=birth.generation, rank=birth.rank, local_rank=birth.local_rank, pid=birth.pid
    )


def status(now: Status) -> bytes:
    told = {each.name: getattr(now, each.name) for each in fields(now)}
    if now.certificate is None:
        del told["certificate"]
    return _line(type="status", **told)


def progress(
    generation: int, rank: int, reports: Sequence[StepReport], size: StepSize | None = None, means: Means | None = None
) -> bytes:
    told = [_reported(each) for each in reports]
    newest = reports[-1].counted if reports else NOTHING_COUNTED
    counted = {"nonfinite": newest.nonfinite, "skipped": newest.skipped}
    if size is None:
        return _line(type="progress", generation=generation, rank=rank, reports=told, counted=counted)
    measured = _measured(size, means or Means())
    return _line(type="progress", generation=generation, rank=rank, reports=told, counted=counted, measured=measured)


def checkpoint(step: int, folder: str, at: float) -> bytes:
    return _line(type="checkpoint", step=step, folder=folder, at=at)


def parse(line: bytes) -> Order | None:
    """None for what this version does not know. Raises ValueError, KeyError or TypeError for what makes no sense."""
    message = json.loads(line)
    match message["type"]:
        case "assign":
            return _assign(message)
        case "halt":
            return Halt(int(message["generation"]))
        case "lease":
            return Lease(float(message["valid_s"]))
        case "locate":
            return Locate()
        case _:
            return None


def _assign(message: Mapping[str, Any]) -> Assign:
    entry: Entry = message["entry"]
    if entry not in ("start", "planned", "repair"):
        raise ValueError(f"unknown entry {entry!r}")
    store = message["store"]
    return Assign(
        generation=int(message["generation"]),
        rank=int(message["rank"]),
        world_size=int(message["world_size"]),
        entry=entry,
        store=Store(str(store["host"]), int(store["port"]), str(store.get("prefix", ""))),
        address=str(message.get("address", "127.0.0.1")),
        leaves=bool(message.get("leaves", False)),
        peers=tuple(map(str, message.get("peers", ()))),
        previous=tuple(map(int, message.get("previous", ()))),
        resume=int(message.get("resume", 0)),
        source=int(message.get("source", 0)),
        laggards=tuple(map(int, message.get("laggards", ()))),
        held=tuple(tuple((int(first), int(last)) for first, last in own) for own in message.get("held", ())),
    )


def _measured(size: StepSize, means: Means) -> dict[str, int | float]:
    return {
        "steps": means.steps,
        "samples": round(means.samples, 3),
        "seconds": round(means.seconds, 6),
        "computed_s": round(means.computed_s, 6),
        "waited_s": round(means.waited_s, 6),
        "longest_s": round(means.longest_s, 6),
        "gradient_bytes": size.gradient_bytes,
        "global_batch": size.global_batch,
    }


def _reported(report: StepReport) -> dict[str, int | float | bool | None]:
    """JSON has no numbers that are not finite, and one of them would make the whole line unreadable."""
    told = {"step": report.step, "loss": report.loss, "samples": report.samples, "at": report.at}
    if report.loss is None or math.isfinite(report.loss):
        return told
    return {**told, "loss": None, "nonfinite": True}


def _line(**message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"

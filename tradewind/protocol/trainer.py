"""The protocol between a live trainer and its worker-agent.

The agent listens on the Unix stream socket TRADEWIND_TRAINER_SOCKET. Each message is one JSON object on one line, whose
`type` names the message. Unknown fields are ignored.

Trainer → agent

    attach    {generation, rank, local_rank, pid}
              The first message: the generation and rank with which the trainer was forked.
    status    {rank, generation, parked, done, held, active, finished, broken, waits, resting, terms,
               certificate, waiting | null, overdue, step_s, paused, paused_at}
              The trainer's whole status, sent when a field other than `done` and `held` changes. See TrainerStatus in
              messages/workers.py. `certificate` is present once the trainer has finished.
    progress  {generation, rank, reports: [{step, loss | null, nonfinite, samples | null, at}, …],
               counted: {nonfinite, skipped},
               measured: {steps, samples, seconds, computed_s, waited_s, longest_s, gradient_bytes,
                          global_batch}}
              Steps that every rank has. With `nonfinite`, the loss is NaN or infinite, and `loss` is null. `counted`
              has the number of such steps in the whole run, and of steps that were not applied. `measured` is optional:
              the times and sizes of this trainer's recent steps. See StepsMeasured in messages/measured.py.
    checkpoint
              {step, folder, at}
              The trainer has written a checkpoint. `step` is the next step to compute from it, `at` is in Unix seconds.

Agent → trainer

    assign    {generation, rank, world_size, entry, address, store: {host, port, prefix}, leaves,
               peers, previous, resume, source, laggards, held}
              `entry` is "start" for a trainer that was forked into this world, otherwise "planned" or "repair".
              `address` is where peers reach this trainer; `peers` are the addresses of all members. With `leaves`, the
              trainer is in the previous world and not in this one. For the other fields see LiveWorld in
              messages/worlds.py.
    halt      {generation}
              All worlds below this generation are dead: leave their collectives and report `parked`.
    lease     {valid_s}
              For this time no other trainer can have this trainer's place.
    locate    {}
              Other ranks wait for a missing rank: report the status again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from tradewind.protocol.lines import AtMost, Count, Lines, RankNumber, Seconds, UnixSeconds, Unreadable
from tradewind.protocol.steps import StepReport, StepsCounted

MESSAGE_LIMIT_BYTES: Final = 1024 * 1024
"""Longest line that an agent reads."""
ORDER_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Longest line that a trainer reads."""

Entry = Literal["start", "planned", "repair"]
Ranges = tuple[tuple[Count, Count], ...]
"""Positions in the global batch of one step, each from the first to before the last."""


@dataclass(frozen=True, slots=True)
class Store:
    host: str
    port: int
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Assign:
    generation: Count
    rank: RankNumber
    world_size: int
    entry: Entry
    store: Store
    address: str = "127.0.0.1"
    leaves: bool = False
    peers: tuple[str, ...] = ()
    previous: tuple[int, ...] = ()
    resume: int = 0
    source: RankNumber = 0
    laggards: tuple[RankNumber, ...] = ()
    held: tuple[Ranges, ...] = ()


@dataclass(frozen=True, slots=True)
class Halt:
    generation: Count


@dataclass(frozen=True, slots=True)
class Lease:
    valid_s: float


@dataclass(frozen=True, slots=True)
class Locate:
    pass


@dataclass(frozen=True, slots=True)
class Attach:
    """The generation and rank with which the host forked this process."""

    generation: Count
    rank: RankNumber
    local_rank: Count = 0
    pid: Count = 0


@dataclass(frozen=True, slots=True)
class Status:
    rank: RankNumber = 0
    generation: Count = 0
    parked: Count = 0
    done: Count = 0
    held: Annotated[Ranges, AtMost(4096)] = ()
    active: bool = False
    finished: bool = False
    broken: Count = 0
    waits: str = ""
    resting: bool = False
    terms: str = ""
    certificate: Mapping[str, object] | None = None
    waiting: Count | None = None
    overdue: bool = False
    step_s: Seconds = 0.0
    paused: str = ""
    paused_at: UnixSeconds = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    generation: Count
    rank: RankNumber
    reports: tuple[StepReport, ...]
    counted: StepsCounted | None = None
    measured: object = None
    """Unchecked: its user checks it, because invalid times must not make the steps unreadable."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    step: Count
    folder: Annotated[str, AtMost(4096)]
    at: UnixSeconds = 0.0


Order = Assign | Halt | Lease | Locate
TrainerMessage = Attach | Status | Progress | Checkpoint

_orders: Lines[Order] = Lines({"assign": Assign, "halt": Halt, "lease": Lease, "locate": Locate})
_messages: Lines[TrainerMessage] = Lines(
    {"attach": Attach, "status": Status, "progress": Progress, "checkpoint": Checkpoint}
)

encode_order = _orders.encode
encode_message = _messages.encode
decode_message = _messages.decode


def decode_order(line: bytes) -> Order:
    """Raises `Unreadable`, and nothing else."""
    order = _orders.decode(line)
    if isinstance(order, Assign) and not order.leaves:
        _refuse_misfits(order)
    return order


def _refuse_misfits(assign: Assign) -> None:
    """Raises `Unreadable` if a field of an assignment does not have an item for each rank."""
    size, is_first = assign.world_size, assign.entry == "start"
    ranks = (assign.rank, *((assign.source, *assign.laggards) if assign.laggards else ()))
    if max(ranks) >= size:
        raise Unreadable(f"'assign' names rank {max(ranks)} in a world of {size}")
    if len(assign.previous) != size and (assign.previous or not is_first):
        raise Unreadable(f"'previous' has {len(assign.previous)} items in a world of {size}")
    if assign.held and len(assign.held) != size:
        raise Unreadable(f"'held' has {len(assign.held)} items in a world of {size}")

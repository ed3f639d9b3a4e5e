"""What the worker-agent and a trainer that uses the SDK say to each other: JSON lines, `type` names the message.

The SDK runs in the job's environment, which has nothing of ours but itself: so both ends spell it out.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from agents.worker.progress import StepReport
from agents.worker.words import Enter, Lease, Park, Word
from agents.worker.words import Locate as LocateWord
from messages.decoding import Decoder
from messages.ids import NO_GENERATION, Counted, Duration, Generation, Range, Rank, UnixSeconds
from messages.measured import StepsMeasured
from messages.workers import SampleCertificate, TrainerStatus
from messages.worlds import Entry, StepsCounted

LINE_LIMIT_BYTES = 1024 * 1024
WAITS_LIMIT = 200
TERMS_LIMIT = 1000
CERTIFICATE_LIMIT = 500


class Attach(Struct, frozen=True, tag_field="type", tag="attach"):
    """First. Says under which generation and rank it was forked."""

    generation: Generation
    rank: Rank
    local_rank: Counted = 0
    pid: Counted = 0


class Status(Struct, frozen=True, tag_field="type", tag="status"):
    """Whole, at every change; see `messages.workers.TrainerStatus`."""

    rank: Rank = Rank(0)
    generation: Generation = NO_GENERATION
    parked: Generation = NO_GENERATION
    done: Counted = 0
    held: Annotated[tuple[Range, ...], Meta(max_length=4096)] = ()
    active: bool = False
    finished: bool = False
    broken: Generation = NO_GENERATION
    waits: str = ""
    resting: bool = False
    terms: str = ""
    certificate: SampleCertificate | None = None
    waiting: Counted | None = None
    overdue: bool = False
    step_s: Duration = 0.0
    paused: str = ""
    paused_at: UnixSeconds = 0.0


class Reported(Struct, frozen=True, tag_field="type", tag="progress"):
    """Of steps in this world, by its rank there."""

    generation: Generation
    rank: Rank
    reports: tuple[StepReport, ...]
    counted: StepsCounted | None = None
    measured: msgspec.Raw = msgspec.Raw()
    """Read apart: its steps count, whatever it makes of their time."""


class Checkpoint(Struct, frozen=True, tag_field="type", tag="checkpoint"):
    """It has written one."""

    step: Counted
    folder: Annotated[str, Meta(max_length=4096)]
    at: UnixSeconds = 0.0


class StartOrEntry(StrEnum):
    START = "start"
    """It was forked for this world."""
    PLANNED = Entry.PLANNED.value
    REPAIR = Entry.REPAIR.value


class Store(Struct, frozen=True):
    host: str
    port: int
    prefix: str


class Assign(Struct, frozen=True, tag_field="type", tag="assign"):
    generation: Generation
    rank: Rank
    world_size: int
    entry: StartOrEntry
    address: str
    """Where peers reach this worker."""
    store: Store
    leaves: bool = False
    peers: tuple[str, ...] = ()
    """Addresses of all members, each once."""
    previous: tuple[int, ...] = ()
    resume: int = 0
    source: Rank = Rank(0)
    laggards: tuple[Rank, ...] = ()
    held: tuple[tuple[Range, ...], ...] = ()


class Halt(Struct, frozen=True, tag_field="type", tag="halt"):
    generation: Generation


class Leased(Struct, frozen=True, tag_field="type", tag="lease"):
    valid_s: float


class Locate(Struct, frozen=True, tag_field="type", tag="locate"):
    """Report where you are."""


TrainerMessage = Attach | Status | Reported | Checkpoint
AgentMessage = Assign | Halt | Leased | Locate

_decoder: Decoder[TrainerMessage] = Decoder(TrainerMessage)
_measured_decoder: Decoder[StepsMeasured | None] = Decoder(StepsMeasured | None)
_encoder = msgspec.json.Encoder()


def encode(message: AgentMessage) -> bytes:
    return _encoder.encode(message) + b"\n"


def decode(line: bytes) -> TrainerMessage:
    """Raises `Undecodable`."""
    return _decoder.decode(line)


def measured_of(said: Reported) -> StepsMeasured | None:
    """None if it said nothing of it. Raises `Undecodable` for what cannot have been measured."""
    return _measured_decoder.decode(said.measured) if said.measured else None


def message_of(word: Word, address: str) -> AgentMessage:
    match word:
        case Enter():
            return _assign(word, address)
        case Park(generation):
            return Halt(generation)
        case Lease(valid_s):
            return Leased(valid_s)
        case LocateWord():
            return Locate()


def status_of(said: Status) -> TrainerStatus:
    """Its local rank is known to whoever had it forked."""
    return TrainerStatus(
        local_rank=0,
        rank=said.rank,
        generation=said.generation,
        parked=said.parked,
        done=said.done,
        held=said.held,
        active=said.active,
        finished=said.finished,
        broken=said.broken,
        waits=said.waits[:WAITS_LIMIT],
        resting=said.resting,
        terms=said.terms if len(said.terms) <= TERMS_LIMIT else "",
        certificate=_shortened(said.certificate),
        waiting=said.waiting,
        overdue=said.overdue,
        step_s=said.step_s,
        paused=said.paused[:WAITS_LIMIT],
        paused_at=said.paused_at,
    )


def _shortened(certificate: SampleCertificate | None) -> SampleCertificate | None:
    if certificate is None:
        return None
    return msgspec.structs.replace(certificate, says=certificate.says[:CERTIFICATE_LIMIT])


def _assign(word: Enter, address: str) -> Assign:
    world, hot = word.world, word.world.hot
    store = Store(world.store.host, world.store.port, world.store.prefix)
    if hot is None:
        return Assign(world.generation, word.rank, world.world_size, StartOrEntry.START, address, store)
    return Assign(
        generation=world.generation,
        rank=word.rank,
        world_size=world.world_size,
        entry=StartOrEntry(hot.entry.value),
        address=address,
        store=store,
        leaves=word.leaves,
        peers=tuple(dict.fromkeys(member.address for member in world.members)),
        previous=hot.previous,
        resume=hot.resume,
        source=hot.source,
        laggards=hot.laggards,
        held=hot.held,
    )

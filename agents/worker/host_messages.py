"""What the worker-agent and its host say to each other, as `tradewind/protocol/host.py` describes it.

The host runs in the job's environment, which has nothing of ours but the host itself: so both ends spell it out.
"""

import msgspec
from msgspec import Struct

from agents.worker.progress import StepReport
from messages.decoding import Decoder
from messages.ids import Generation, Rank

LINE_LIMIT_BYTES = 4 * 1024 * 1024
"""The host promises lines of at most 1 MiB."""


class TrainerSpec(Struct, frozen=True, omit_defaults=True):
    rank: Rank
    env: dict[str, str]
    argv: list[str]
    cwd: str
    script: str | None = None
    module: str | None = None
    inherit: bool = False
    program: bool = False


class Fork(Struct, frozen=True, tag_field="type", tag="fork"):
    generation: Generation
    trainers: tuple[TrainerSpec, ...]


class Stop(Struct, frozen=True, tag_field="type", tag="stop"):
    generation: Generation
    grace_s: float


class Abort(Struct, frozen=True, tag_field="type", tag="abort"):
    generation: Generation
    rank: Rank
    why: str


class Exit(Struct, frozen=True, tag_field="type", tag="exit"):
    pass


class Hello(Struct, frozen=True, tag_field="type", tag="hello"):
    pid: int
    python: str
    torch: str
    warm_s: float


class Forked(Struct, frozen=True, tag_field="type", tag="forked"):
    generation: Generation
    rank: Rank
    pid: int


class ForkFailed(Struct, frozen=True, tag_field="type", tag="fork_failed"):
    generation: Generation
    rank: Rank
    error: str


class Output(Struct, frozen=True, tag_field="type", tag="output"):
    generation: Generation
    rank: Rank
    stream: str
    lines: tuple[str, ...]


class Reported(Struct, frozen=True, tag_field="type", tag="progress"):
    generation: Generation
    rank: Rank
    reports: tuple[StepReport, ...]


class Checkpointed(Struct, frozen=True, tag_field="type", tag="checkpointed"):
    generation: Generation
    rank: Rank


class Exited(Struct, frozen=True, tag_field="type", tag="exited"):
    generation: Generation
    rank: Rank
    code: int | None = None
    signal: str | None = None
    tail: tuple[str, ...] = ()
    error: str | None = None
    peer_lost: bool = False
    stalled: str = ""
    hint: str | None = None


class Stopped(Struct, frozen=True, tag_field="type", tag="stopped"):
    generation: Generation


class Refused(Struct, frozen=True, tag_field="type", tag="refused"):
    why: str
    unfit: bool = False


Command = Fork | Stop | Abort | Exit
HostMessage = Hello | Forked | ForkFailed | Output | Reported | Checkpointed | Exited | Stopped | Refused

_decoder: Decoder[HostMessage] = Decoder(HostMessage)
_encoder = msgspec.json.Encoder()


def encode(command: Command) -> bytes:
    return _encoder.encode(command) + b"\n"


def decode(line: bytes) -> HostMessage:
    """Raises `Undecodable`."""
    return _decoder.decode(line)

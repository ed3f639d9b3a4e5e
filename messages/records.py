"""Stored records that several kinds of process read: the job record and the leader's lease.

The master writes and reads whole job records. Workers and the reaper read the parts below, which remain readable if a
newer master adds fields.
"""

from enum import StrEnum

from msgspec import Struct, structs

from messages.compact_worlds import WorldReference
from messages.decoding import encode_readable
from messages.ids import Epoch, Generation, WorkerId
from messages.jobs import Launch
from messages.workers import SampleCertificate, WrittenCheckpoint
from messages.worlds import Assignment


class Phase(StrEnum):
    WAITING = "waiting"
    """No world; `why` tells what the job waits for."""
    FORMING = "forming"
    """A world is decided or will be; not all of its members are ready."""
    RUNNING = "running"
    RESHAPING = "reshaping"
    """The old world is being parked."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def ended(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED)


class Record(Struct, frozen=True, omit_defaults=True):
    """A job's state that outlives the master. Stored in KV before any decision in it is published."""

    phase: Phase
    why: str
    generation: Generation
    """The fence: lower generations no longer count."""
    wanted: int
    submitted_at: float
    """Unix seconds."""
    epoch: Epoch = Epoch(0)
    """The epoch of the master that wrote the record."""
    assignment: Assignment | None = None
    """The last decided world: of `generation`, or older while a new world is being formed."""
    prepared: Assignment | None = None
    """The next world, above `generation`. Its trainers get ready while the current world trains, then switch."""
    formed: int = 0
    """Number of worlds that ran so far."""
    starts: int = 0
    """Number of worlds in which all trainers were new processes."""
    checkpointed: bool = False
    """True if a script without the SDK has a checkpoint (reported, or at `launch.checkpoint_path`): restarts resume."""
    failures: int = 0
    losses: int = 0
    stop_why: str | None = None
    stop_grace_s: float | None = None
    """Seconds that trainers get to save and end, if the stop request gave them."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest known checkpoint when the trainers last ended."""
    failed_tail: tuple[str, ...] = ()
    paused: str | None = None
    """Why the job has no machines until its budget is raised; None if it may have them."""
    spot_only: str | None = None
    """Why the job has no machines on demand until its budget is raised; None if it may have them."""
    max_usd_total: float | None = None
    """The raised budget, which replaces that of the job file."""
    certificate: SampleCertificate | None = None
    """The certificate of finished trainers (SDK)."""
    outdated: tuple[WorkerId, ...] = ()
    """Workers that still run the code from before the last reload."""
    reloads: int = 0
    """Number of requested reloads."""
    budget_reached: bool = False
    """True from when the budget is reached until a person raises it enough or scales down: restrictions remain."""

    @property
    def rests(self) -> bool:
        """True if the job is paused and has no world, so that it needs no workers."""
        return self.paused is not None and self.phase is Phase.WAITING


class RecordWorlds(Struct, frozen=True, omit_defaults=True):
    """References to worlds that are too large for their record and are stored in chunks."""

    assignment: WorldReference | None = None
    prepared: WorldReference | None = None


NONE_APART = RecordWorlds()


class RecordDocument(Record, frozen=True, omit_defaults=True):
    """A job record as it is stored."""

    halted: Generation | None = None
    """Tells workers that nothing below this generation may run."""
    worlds: RecordWorlds = NONE_APART

    @property
    def record(self) -> Record:
        """Returns the record without worlds that are stored in chunks."""
        return Record(*(getattr(self, name) for name in Record.__struct_fields__))


class RecordForWorkers(Struct, frozen=True):
    """The part of a job record that its workers read."""

    assignment: Assignment | None = None
    epoch: Epoch | None = None
    halted: Generation | None = None
    """Nothing below this generation may run."""
    submitted_at: float = 0.0
    prepared: Assignment | None = None
    worlds: RecordWorlds = RecordWorlds()


class RecordPhase(Struct, frozen=True):
    """The part of a job record that tells whether the job has ended."""

    phase: Phase


class SpecLaunch(Struct, frozen=True):
    """The part of a job specification that its workers read."""

    launch: Launch


class LeaseRecord(Struct, frozen=True):
    """The value of the lease key."""

    holder: str
    """The master's name, and a random part that is unique to its process."""
    since: float
    """Unix seconds at which the holder started."""
    url: str = ""
    """The URL of the leader's API, for clients of a standby."""


def encode_record(record: Record, worlds: RecordWorlds = NONE_APART) -> bytes:
    """Encodes a record without the `worlds` that are stored in chunks. Raises `NotStorable`."""
    fields = structs.asdict(record)
    apart = {name: None for name, reference in structs.asdict(worlds).items() if reference is not None}
    document = RecordDocument(**fields | apart, halted=record.generation, worlds=worlds)
    return encode_readable(document, RecordDocument)

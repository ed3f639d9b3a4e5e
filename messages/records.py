"""Records on the bus that more than one kind of process reads: the job record and the leader's lease.

The master writes a job record whole and reads it whole. Workers and the reaper read the parts below: a part stays
readable when a newer master writes what this version does not know.
"""

from enum import StrEnum

import msgspec
from msgspec import Struct, structs

from messages.compact_worlds import WorldReference
from messages.decoding import encode_readable
from messages.ids import Epoch, Generation, WorkerId
from messages.jobs import Launch
from messages.workers import SampleCertificate, WrittenCheckpoint
from messages.worlds import Assignment


class Phase(StrEnum):
    WAITING = "waiting"
    """No world; `why` says what for."""
    FORMING = "forming"
    """A world is decided or about to be; not all of its members are ready."""
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
    """What outlives the master: kept in KV and saved before anything that it decides is published."""

    phase: Phase
    why: str
    generation: Generation
    """The fence: nothing below it counts any more."""
    wanted: int
    submitted_at: float
    """Unix seconds."""
    epoch: Epoch = Epoch(0)
    """Of the master that wrote it."""
    assignment: Assignment | None = None
    """The last world that was decided; of `generation`, or older while a new one is being made."""
    prepared: Assignment | None = None
    """The next world, above `generation`: its trainers get ready while the present one trains, then go over."""
    formed: int = 0
    """Worlds that ran so far."""
    starts: int = 0
    """Those of them in which every trainer was a new process."""
    checkpointed: bool = False
    """A script without the SDK reported a checkpoint, or one was seen at `launch.checkpoint_path`: restarts resume."""
    failures: int = 0
    losses: int = 0
    stop_why: str | None = None
    stop_grace_s: float | None = None
    """How long trainers may take to save and end, where the one who asked for the stop said so."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest that was known when its trainers last ended."""
    failed_tail: tuple[str, ...] = ()
    paused: str | None = None
    """Why it has to do without machines until its budget is raised."""
    spot_only: str | None = None
    """Why it may have no machines on demand until its budget is raised."""
    max_usd_total: float | None = None
    """In place of what its file says, since somebody raised it."""
    certificate: SampleCertificate | None = None
    """What its trainers can prove, since they have finished (SDK)."""
    outdated: tuple[WorkerId, ...] = ()
    """Workers that still run the code from before the last reload."""
    reloads: int = 0
    """How often a person asked for a reload."""
    budget_reached: bool = False
    """And no person has raised it or wanted fewer since, or it was not enough: what is forbidden stays so."""

    @property
    def rests(self) -> bool:
        """It is paused and has no world any more: nobody is needed."""
        return self.paused is not None and self.phase is Phase.WAITING


class RecordWorlds(Struct, frozen=True, omit_defaults=True):
    """Worlds of a record that are stored apart from it, because they are large."""

    assignment: WorldReference | None = None
    prepared: WorldReference | None = None


class RecordReferences(Struct, frozen=True):
    """The part of a job record that says which worlds are stored apart from it."""

    worlds: RecordWorlds = RecordWorlds()


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
    """The part of a job record that says whether the job has ended."""

    phase: Phase


class SpecLaunch(Struct, frozen=True):
    """The part of a job specification that its workers read."""

    launch: Launch


class LeaseRecord(Struct, frozen=True):
    """What is in the key; for people who look at it, too."""

    holder: str
    """The name, and something that no other or later process has."""
    since: float
    """Unix seconds of its start."""
    url: str = ""
    """Where its API is, for those who asked another one."""


def encode_record(record: Record, worlds: RecordWorlds | None = None) -> bytes:
    """A job record, with `halted` for its workers. Raises `Unreadable`.

    `worlds`: those that are stored apart, and so are left out."""
    more: dict[str, object] = {"halted": record.generation}
    if worlds is not None:
        assignment = record.assignment if worlds.assignment is None else None
        prepared = record.prepared if worlds.prepared is None else None
        record = structs.replace(record, assignment=assignment, prepared=prepared)
        more["worlds"] = worlds
    return encode_readable(msgspec.to_builtins(record) | more, Record)

"""One job's ledger in a master: the events between two looks at the cloud, and its storage in KV.

Only the leader writes, always over the revision that it read, so it notices a master that took over meanwhile. Then
it drops what it has learned and not written: the stored ledger has the time up to which each machine is added up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controlplane.catalog.kinds import MachineKind
from controlplane.ledger.events import (
    ActivitiesChanged,
    Found,
    Hop,
    LedgerEvent,
    MachinesListed,
    PricesChanged,
    StepsCommitted,
)
from controlplane.ledger.learn import learn
from controlplane.ledger.records import LedgerUnreadable, decode_ledger, encode_ledger
from controlplane.ledger.state import Activity, Ledger, Rate, new_ledger
from messages import subjects
from messages.decoding import NotStorable
from messages.ids import Epoch, JobName
from messages.worlds import Member
from runtime.bus import Bucket
from runtime.errors import Conflict
from runtime.logs import logger

PENDING_AT_MOST = 10_000


@dataclass(slots=True)
class Book:
    job: JobName
    since_ms: int
    ledger: Ledger | None = None
    """None before the first read."""
    over: bool = False
    """The job has ended: once its machines are gone, nothing more is added."""
    pending: list[LedgerEvent] = field(default_factory=list)
    members: tuple[Member, ...] = ()
    """Members of the current world."""
    given_bytes: int = 0
    measured_bytes: int = 0
    """Bytes of the gradients of a step, by the job's file and by its trainers; 0 if not known."""
    hops: tuple[Hop, ...] = ()
    """Bytes that a step of the current world sends between zones."""
    activities: Mapping[str, Activity] = field(default_factory=dict)
    rates: Mapping[MachineKind, Rate] = field(default_factory=dict)
    """The last prices that were learned."""
    revision: int = 0
    saved: bytes = b""
    unsaved: str = ""
    """Why the ledger cannot be encoded; the stored one stays."""
    unreadable: str = ""
    """Why the stored ledger cannot be read. Then `ledger` is None, and the stored one is not overwritten."""
    _steps: StepsCommitted | None = None
    """Steps that are received and not learned yet."""

    @property
    def gradient_bytes(self) -> int:
        return self.measured_bytes or self.given_bytes

    def hear(self, event: LedgerEvent) -> None:
        self.pending.append(event)
        del self.pending[:-PENDING_AT_MOST]

    def hear_activities(self, at_ms: int, activities: Mapping[str, Activity]) -> None:
        """Record the activities of all nodes; a node that is missing lost its worker and is idle."""
        reported = {**dict.fromkeys(self.activities, Activity.IDLE), **activities}
        changed = {node: activity for node, activity in reported.items() if self.activities.get(node) is not activity}
        if changed:
            self.hear(ActivitiesChanged(at_ms, changed))
        self.activities = reported

    def hear_steps(self, at_ms: int, first_step: int, last_step: int, samples: int) -> None:
        """Gather steps until the next read of the ledger, because trainers report often."""
        heard = self._steps
        if heard is not None:
            first_step, last_step = min(first_step, heard.first_step), max(last_step, heard.last_step)
            samples += heard.samples
        self._steps = StepsCommitted(at_ms, first_step, last_step, samples)

    def hear_world(self, hops: tuple[Hop, ...]) -> None:
        """Record what a step of the new world sends; earlier steps belong to the world before."""
        if hops != self.hops:
            self._hear_gathered()
            self.hops = hops

    def see(self, at_ms: int, found: tuple[Found, ...], rates: Mapping[MachineKind, Rate], priced_ms: int) -> None:
        """Record a listing of the cloud; an empty one counts too while the job may get machines."""
        if self.unreadable:
            # Hours of listings, learned at once, would block the master; the next listing replaces them.
            return
        changed = {kind: rate for kind, rate in rates.items() if self.rates.get(kind) != rate}
        if changed:
            self.hear(PricesChanged(priced_ms, changed))
            self.rates = {**self.rates, **changed}
        if found or not self.over or (self.ledger is not None and self.ledger.machines):
            self.hear(MachinesListed(at_ms, found))
        live = {each.name for each in found}
        self.activities = {
            node: activity
            for node, activity in self.activities.items()
            if node in live or activity is not Activity.IDLE
        }

    def current(self) -> Ledger | None:
        """The ledger with all pending events; None before it was read."""
        if self.ledger is None:
            return None
        self._hear_gathered()
        for event in self.pending:
            self.ledger = learn(self.ledger, event)
        self.pending.clear()
        return self.ledger

    async def read(self, bucket: Bucket) -> None:
        """Read the stored ledger; raises `BusUnavailable`. Another try may succeed after a person repaired it."""
        entry = await bucket.get(subjects.ledger_key(self.job))
        stored = new_ledger(self.job, self.since_ms)
        if entry is not None:
            try:
                stored, _ = decode_ledger(self.job, entry.value)
            except LedgerUnreadable as error:
                self._refuse(str(error))
                return
        self.revision = entry.revision if entry is not None else 0
        self.ledger = stored if stored.since_ms == self.since_ms else new_ledger(self.job, self.since_ms)
        self.unreadable = ""

    async def save(self, bucket: Bucket, epoch: Epoch) -> None:
        """Store the ledger if it changed; raises `BusUnavailable`."""
        ledger = self.current()
        if ledger is None or ledger == new_ledger(self.job, self.since_ms):
            return
        try:
            value = encode_ledger(ledger, epoch)
        except NotStorable as error:
            self._keep_stored(str(error))
            return
        if value == self.saved:
            return
        try:
            self.revision = await bucket.update(subjects.ledger_key(self.job), value, self.revision)
            self.saved = value
        except Conflict:
            await self._resolve_conflict(bucket, epoch)

    async def _resolve_conflict(self, bucket: Bucket, epoch: Epoch) -> None:
        """Read the stored ledger after a conflict.

        If this master wrote it and the answer was lost, the next save overwrites it. If another master wrote it, its
        ledger replaces ours. If the key was deleted, the next save creates it."""
        entry = await bucket.get(subjects.ledger_key(self.job))
        if entry is None:
            self.revision = 0
            return
        if _writer(self.job, entry.value) == epoch:
            self.revision = entry.revision
            return
        logger(job=self.job).warning("ledger_read_again")
        await self.read(bucket)
        self.activities, self.rates = {}, {}

    def _keep_stored(self, why: str) -> None:
        if why != self.unsaved:
            logger(job=self.job).error("ledger_not_saved", error=why)
        self.unsaved = why

    def _refuse(self, why: str) -> None:
        if why != self.unreadable:
            logger(job=self.job).error("stored_ledger_unreadable", error=why)
        self.ledger, self.unreadable = None, why

    def _hear_gathered(self) -> None:
        if self._steps is not None and self.ledger is not None:
            reported = (event.samples for event in self.pending if isinstance(event, StepsCommitted))
            samples = max((self.ledger.samples, *reported)) + self._steps.samples
            self.hear(replace(self._steps, samples=samples, hops=self.hops))
            self._steps = None


def _writer(job: JobName, value: bytes) -> Epoch | None:
    try:
        return decode_ledger(job, value)[1]
    except LedgerUnreadable:
        return None

"""One job's ledger in a master's hands: what it hears between two looks, and how it is kept in KV.

Only the leader writes, each time over what it read: a master that took over meanwhile is found out. What this one has
learned and not written is then nobody's loss: where each machine's time was added up to is in what was read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controlplane.catalog.kinds import MachineKind
from controlplane.ledger.events import (
    DoingsChanged,
    Found,
    Hop,
    LedgerEvent,
    MachinesListed,
    PricesChanged,
    StepsCommitted,
)
from controlplane.ledger.learn import learn
from controlplane.ledger.records import LedgerUnreadable, decode_ledger, encode_ledger
from controlplane.ledger.state import Doing, Ledger, Rate, new_ledger
from messages import subjects
from messages.decoding import Unreadable
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
    """None until it was read."""
    over: bool = False
    """The job has ended: once its machines are gone there is nothing more to keep."""
    pending: list[LedgerEvent] = field(default_factory=list)
    members: tuple[Member, ...] = ()
    """Of the present world."""
    given_bytes: int = 0
    measured_bytes: int = 0
    """Of the gradients of a step, by the job's file and by its trainers; 0 where that is not known."""
    hops: tuple[Hop, ...] = ()
    """What a step of the present world sends."""
    doings: Mapping[str, Doing] = field(default_factory=dict)
    rates: Mapping[MachineKind, Rate] = field(default_factory=dict)
    """As they were last told."""
    revision: int = 0
    saved: bytes = b""
    unsaved: str = ""
    """Why it cannot be saved as it is; what was stored before stays."""
    unreadable: str = ""
    """Why what is stored cannot be read. Then there is no ledger, and nothing is written over it."""
    _steps: StepsCommitted | None = None
    """Heard, and not learned yet."""

    @property
    def gradient_bytes(self) -> int:
        return self.measured_bytes or self.given_bytes

    def hear(self, event: LedgerEvent) -> None:
        self.pending.append(event)
        del self.pending[:-PENDING_AT_MOST]

    def hear_doings(self, at_ms: int, doings: Mapping[str, Doing]) -> None:
        """Of all its nodes; one that is not among them any more has lost its worker."""
        told = {**dict.fromkeys(self.doings, Doing.IDLE), **doings}
        changed = {node: doing for node, doing in told.items() if self.doings.get(node) is not doing}
        if changed:
            self.hear(DoingsChanged(at_ms, changed))
        self.doings = told

    def hear_steps(self, at_ms: int, first_step: int, last_step: int, samples: int) -> None:
        """Gathered until somebody looks: trainers report often."""
        heard = self._steps
        if heard is not None:
            first_step, last_step = min(first_step, heard.first_step), max(last_step, heard.last_step)
            samples += heard.samples
        self._steps = StepsCommitted(at_ms, first_step, last_step, samples)

    def hear_world(self, hops: tuple[Hop, ...]) -> None:
        """What was heard before is of the world before."""
        if hops != self.hops:
            self._hear_gathered()
            self.hops = hops

    def see(self, at_ms: int, found: tuple[Found, ...], rates: Mapping[MachineKind, Rate], priced_ms: int) -> None:
        """What the cloud shows; that a job has no machines is worth keeping too, while it may get some."""
        if self.unreadable:
            # Hours of looks, learned at once, would hold up the whole master, and the next one makes up for them.
            return
        changed = {kind: rate for kind, rate in rates.items() if self.rates.get(kind) != rate}
        if changed:
            self.hear(PricesChanged(priced_ms, changed))
            self.rates = {**self.rates, **changed}
        if found or not self.over or (self.ledger is not None and self.ledger.machines):
            self.hear(MachinesListed(at_ms, found))
        live = {each.name for each in found}
        self.doings = {node: doing for node, doing in self.doings.items() if node in live or doing is not Doing.IDLE}

    def current(self) -> Ledger | None:
        """With all that was heard."""
        if self.ledger is None:
            return None
        self._hear_gathered()
        for event in self.pending:
            self.ledger = learn(self.ledger, event)
        self.pending.clear()
        return self.ledger

    async def read(self, bucket: Bucket) -> None:
        """Raises `BusUnavailable`. What cannot be read may be tried again: a person may see to it."""
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
        """Raises `BusUnavailable`."""
        ledger = self.current()
        if ledger is None or ledger == new_ledger(self.job, self.since_ms):
            return
        try:
            value = encode_ledger(ledger, epoch)
        except Unreadable as error:
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
        """Ours, whose answer was lost, is written over next time; what another master wrote is the truth.

        If somebody deleted it, it is written again: nothing else knows what was spent."""
        entry = await bucket.get(subjects.ledger_key(self.job))
        if entry is None:
            self.revision = 0
            return
        if _writer(self.job, entry.value) == epoch:
            self.revision = entry.revision
            return
        logger(job=self.job).warning("ledger_read_again")
        await self.read(bucket)
        self.doings, self.rates = {}, {}

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
            told = (event.samples for event in self.pending if isinstance(event, StepsCommitted))
            samples = max((self.ledger.samples, *told)) + self._steps.samples
            self.hear(replace(self._steps, samples=samples, hops=self.hops))
            self._steps = None


def _writer(job: JobName, value: bytes) -> Epoch | None:
    try:
        return decode_ledger(job, value)[1]
    except LedgerUnreadable:
        return None

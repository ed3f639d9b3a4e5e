"""The ledgers of all jobs of one master, fed by its messages and by regular listings of the cloud's machines."""

from collections.abc import Callable, Iterable

from controlplane.catalog.links import Links
from controlplane.catalog.offers import Catalog
from controlplane.catalog.shipped import shipped_catalog, shipped_links
from controlplane.clouds.observations import Look, Looks
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.job.state import Job
from controlplane.lease.keeper import Leadership
from controlplane.ledger.activity import activities_of, hops_of
from controlplane.ledger.book import Book
from controlplane.ledger.machines import found_by_job
from controlplane.ledger.pricing import Market, market_of, rates_of
from controlplane.ledger.records import LedgerUnreadable
from controlplane.ledger.state import Ledger
from messages.clusters import Presence, WorkerObservation
from messages.ids import ClusterName, JobName, WorkerId
from messages.worlds import Progress
from runtime.bus import Bucket
from runtime.clock import Clock
from runtime.errors import BusUnavailable
from runtime.logs import WhyLog, logger

SAVE_S = 10.0
BLIND_S = 10.0
"""Seconds without a listing that budgets ignore: known machines count at their newest prices meanwhile."""


class Books:
    def __init__(
        self,
        bucket: Bucket,
        clock: Clock,
        leadership: Leadership,
        *,
        catalog: Callable[[], Catalog] | None = None,
        links: Links | None = None,
        save_s: float = SAVE_S,
    ) -> None:
        self._bucket = bucket
        self._clock = clock
        self._leadership = leadership
        self._catalog = catalog
        self._links = links
        self._save_s = save_s
        self._books: dict[JobName, Book] = {}
        self._nodes: dict[ClusterName, dict[WorkerId, str]] = {}
        self._saved_s = clock.monotonic_s()
        self._looked_ms: int | None = None
        self._seen_s: float | None = None
        """When a look last succeeded, or the first was tried; None without looks."""
        self._why_unseen = ""
        """Why the last look failed; empty if it succeeded."""
        self._log_unseen = WhyLog(logger(), "machines_not_seen")
        self._log_unpriced = WhyLog(logger(), "prices_not_seen")
        self._log_unsaved = WhyLog(logger(), "ledger_not_saved")

    # Messages of the master

    def open(self, job: Job) -> None:
        """Open the ledger of a job; a later job of the same name gets its own."""
        since_ms = _ms(job.record.submitted_at)
        known = self._books.get(job.name)
        if known is None or known.since_ms != since_ms:
            self._books[job.name] = Book(job.name, since_ms, over=job.record.phase.ended)

    def close(self, job: JobName) -> None:
        self._books.pop(job, None)

    def see(
        self,
        cluster: ClusterName,
        observations: Iterable[WorkerObservation],
        forgotten: Iterable[WorkerId] = (),
        *,
        is_whole: bool = False,
    ) -> None:
        """Learn the nodes of workers from a cluster's report; `is_whole`: the report has all workers."""
        nodes = self._nodes.setdefault(cluster, {})
        if is_whole:
            nodes.clear()
        for worker in forgotten:
            nodes.pop(worker, None)
        for observation in observations:
            if observation.presence is Presence.GONE:
                nodes.pop(observation.worker, None)
            elif observation.status is not None and observation.status.node:
                nodes[observation.worker] = observation.status.node

    def forget_cluster(self, cluster: ClusterName) -> None:
        self._nodes.pop(cluster, None)

    def hear(self, job: Job) -> None:
        """Learn from a job after each of its decisions; only changes count."""
        book = self._books.get(job.name)
        if book is None:
            return
        book.over = job.record.phase.ended
        book.hear_activities(self._now_ms(), activities_of(job, self._node_of))
        world, profile = job.record.assignment, job.spec.profile
        if world is not None and book.members is not world.members:
            book.members = world.members
            book.given_bytes = profile.gradient_bytes if profile is not None else 0
            self._hear_world(book)

    def hear_progress(self, report: Progress) -> None:
        book = self._books.get(report.job)
        if book is None or not report.ranks:
            return
        measured = max((rank.measured.gradient_bytes for rank in report.ranks if rank.measured is not None), default=0)
        if measured and measured != book.measured_bytes:
            book.measured_bytes = measured
            self._hear_world(book)
        first = min(rank.first_step for rank in report.ranks)
        last = max(rank.last_step for rank in report.ranks)
        book.hear_steps(self._now_ms(), first, last, sum(rank.samples for rank in report.ranks))

    def _hear_world(self, book: Book) -> None:
        if book.gradient_bytes:
            self._links = self._links or shipped_links()
            book.hear_world(hops_of(book.members, book.gradient_bytes, self._links))

    # For people and budgets

    async def ledger(self, job: JobName) -> Ledger | None:
        """The ledger up to the last look; None for an unknown job. Raises `BusUnavailable` and `LedgerUnreadable`."""
        book = self._books.get(job)
        if book is None:
            return None
        if book.ledger is None:
            await book.read(self._bucket)
        if book.unreadable:
            raise LedgerUnreadable(book.unreadable)
        return book.current()

    def known(self, job: JobName) -> Ledger | None:
        """The ledger without waiting; None if it was not read yet or is unreadable."""
        book = self._books.get(job)
        return book.current() if book is not None else None

    def why_unreadable(self, job: JobName) -> str:
        """Why the stored ledger cannot be read; empty if it can."""
        book = self._books.get(job)
        return book.unreadable if book is not None else ""

    def why_blind(self) -> str:
        """Why machines were not listed for more than `BLIND_S`; empty if they were."""
        if self._seen_s is None or self._clock.monotonic_s() - self._seen_s <= BLIND_S:
            return ""
        return self._why_unseen or "it has not answered yet"

    # Looks at the cloud

    async def run(self, looks: Looks, fleet: str) -> None:
        """Run until cancelled."""
        self._begin()
        number = 0
        while True:
            look = await looks.next(number)
            number = look.number
            await self.observe(look, fleet)
            if self._clock.monotonic_s() - self._saved_s >= self._save_s:
                await self.save()

    async def observe(self, look: Look, fleet: str) -> None:
        """Learn one look. The next look makes up for what this one missed."""
        self._begin()
        self._why_unseen = await self._read_all() or self._take_in(look, fleet)
        if not self._why_unseen:
            self._seen_s = self._clock.monotonic_s()

    def _begin(self) -> None:
        if self._seen_s is None:
            self._seen_s = self._clock.monotonic_s()

    def _take_in(self, look: Look, fleet: str) -> str:
        """Learn the look's machines and prices; returns why there are none, or an empty text."""
        at_ms = _ms(look.at)
        if isinstance(look.machines, Unreachable | Refused):
            self._log_unseen(look.machines.detail)
            return look.machines.detail
        found = found_by_job(look.machines, fleet)
        market = self._market(look) if found else {}
        # A price that differs from the last look's changed at some time between the two.
        priced_ms = (at_ms + (self._looked_ms or at_ms)) // 2
        self._looked_ms = at_ms
        for name, book in self._books.items():
            mine = found.get(name, ())
            rates = rates_of(mine, market, self._list_prices()) if mine and market is not None else {}
            book.see(at_ms, mine, rates, priced_ms)
        return ""

    async def save(self) -> None:
        self._saved_s = self._clock.monotonic_s()
        for book in tuple(self._books.values()):
            if not self._leadership.may_act():
                return
            try:
                await book.save(self._bucket, self._leadership.epoch)
            except BusUnavailable as error:
                self._log_unsaved(str(error))
                return

    async def _read_all(self) -> str:
        """Read all ledgers that were not read; returns why that failed, or an empty text."""
        try:
            for book in tuple(self._books.values()):
                if book.ledger is None:
                    await book.read(self._bucket)
        except BusUnavailable as error:
            self._log_unsaved(str(error))
            return str(error)
        return ""

    def _market(self, look: Look) -> Market | None:
        """The market prices of a look; None if they failed: their costs are learned later."""
        if isinstance(look.prices, Unreachable | Refused):
            self._log_unpriced(look.prices.detail)
            return None
        return market_of(look.prices)

    def _list_prices(self) -> Catalog:
        self._catalog = self._catalog or _remembered(shipped_catalog())
        return self._catalog()

    def _node_of(self, cluster: ClusterName, worker: WorkerId) -> str:
        return self._nodes.get(cluster, {}).get(worker, "")

    def _now_ms(self) -> int:
        return _ms(self._clock.wall_s())


def _remembered(catalog: Catalog) -> Callable[[], Catalog]:
    return lambda: catalog


def _ms(seconds: float) -> int:
    return round(seconds * 1000)

"""Terms of a master in this process."""

from controlplane.capacity.interface import JobCapacity, NoCapacity
from controlplane.jobs.announcer import Announcer
from controlplane.jobs.context import TermContext
from controlplane.lease.keeper import Leadership
from controlplane.ledger.books import Books
from controlplane.master.term import Term
from messages.api import Version
from messages.ids import Epoch
from runtime.bus import Bucket, Bus
from runtime.clock import SystemClock
from tests.stores.conftest import a_place

FIRST = Epoch(1)


def a_context(bus: Bus, bucket: Bucket, epoch: Epoch = FIRST) -> TermContext:
    leadership = Leadership(epoch, lambda: epoch)
    return TermContext(bus, bucket, Announcer(bus, epoch), SystemClock(), leadership)


def a_term(context: TermContext, capacity: JobCapacity | None = None, *, keep_jobs: int = 10) -> Term:
    given = capacity or NoCapacity(context.clock)
    books = Books(context.bucket, context.clock, context.leadership, catalog=lambda: given.advisor.list_prices())
    about = Version("1", 1, context.leadership.epoch)
    return Term(context, context.bucket, a_place(), books, given, about, keep_jobs)

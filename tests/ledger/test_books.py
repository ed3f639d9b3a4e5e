"""Ledgers in a master: its messages, the stored ledger, and a later master that reads it."""

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from msgspec import structs

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.links import Links
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.shipped import shipped_links
from controlplane.clouds.interface import MachineInfo, MarketPrice
from controlplane.clouds.observations import look_at
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.job.state import Job, new_job
from controlplane.job.workers import Worker
from controlplane.lease.keeper import Leadership
from controlplane.ledger.activity import activities_of, hops_of
from controlplane.ledger.book import Book
from controlplane.ledger.books import BLIND_S, Books
from controlplane.ledger.events import Hop
from controlplane.ledger.pricing import market_of, rate_of
from controlplane.ledger.records import LedgerUnreadable
from controlplane.ledger.settle import sums
from controlplane.ledger.spending import hourly, spent
from controlplane.ledger.state import Activity, Rate, new_ledger
from controlplane.ledger.views import cost_view, proven
from messages import subjects
from messages.clusters import Presence, WorkerObservation
from messages.criteria import StepProfile, StepTime
from messages.ids import ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.labels import FLEET_LABEL, JOB_LABEL
from messages.measured import StepsMeasured
from messages.records import Phase, Record
from messages.workers import SampleCertificate, WorkerPhase, WorkerStatus
from messages.worlds import Assignment, Member, Progress, RankProgress, StoreAddress
from runtime.bus import Bucket, Bus
from tests.capacity.fake_cloud import FakeCloud
from tests.catalog.builders import a_catalog, an_offer
from tests.ledger.builders import L4
from tests.specs import a_spec

FLEET = "a-fleet"
JOB = JobName("a-job")
CLUSTER = ClusterName("sim-us")
SUBMITTED = 1_800_000_000.0
USD = 1_000_000


@dataclass
class HandClock:
    now_s: float = SUBMITTED

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


class PricedCloud(FakeCloud):
    def __init__(self) -> None:
        super().__init__("sim-us")
        self.usd = 1
        self.away = False

    async def machines(self) -> Any:
        return Unreachable("nobody answers") if self.away else tuple(self.running)

    async def market(self) -> Any:
        return (MarketPrice(L4.zone, L4.accelerator, self.usd * USD, 3 * USD),)

    def start(self, name: str, at: float, id_: str = "") -> None:
        labels = {JOB_LABEL: JOB, FLEET_LABEL: FLEET}
        self.running.append(MachineInfo(id_ or name, name, L4, at, labels))

    def take(self, name: str) -> None:
        self.running = [machine for machine in self.running if machine.name != name]


def a_job(*workers: str, phase: Phase = Phase.RUNNING, members: tuple[str, ...] | None = None) -> Job:
    spec = a_spec(JOB)
    job = new_job(spec, epoch=Epoch(1), at_s=0.0, submitted_at=SUBMITTED)
    ranks = tuple(a_member(worker, number) for number, worker in enumerate(workers if members is None else members))
    world = Assignment(JOB, Generation(1), len(ranks), ranks, StoreAddress("h", 1), spec.launch, 5.0, "")
    record = Record(phase, "", Generation(1), len(workers), SUBMITTED, assignment=world)
    known = {WorkerId(each): Worker(WorkerId(each), CLUSTER, 0.0, 0.0, phase=WorkerPhase.READY) for each in workers}
    return structs.replace(job, record=record, workers=known)


def a_member(worker: str, rank: int, zone: str = "us-central1-a") -> Member:
    return Member(WorkerId(worker), CLUSTER, zone[:-2], zone, "", rank, Rank(rank), 1)


def some_observations(**nodes: str) -> tuple[WorkerObservation, ...]:
    """Workers, and the nodes that they are on."""
    return tuple(
        WorkerObservation(
            WorkerId(worker),
            JOB,
            Presence.ALIVE,
            status=WorkerStatus(WorkerId(worker), CLUSTER, JOB, 1, WorkerPhase.READY, node=node),
        )
        for worker, node in nodes.items()
    )


@pytest.fixture
async def bucket(bus: Bus) -> Bucket:
    return await bus.bucket(subjects.STATE_BUCKET)


@dataclass
class Service:
    bucket: Bucket
    clock: HandClock
    cloud: PricedCloud

    def master(self, epoch: int = 1, *, leads: bool = True) -> Books:
        current = Epoch(epoch) if leads else None
        books = Books(self.bucket, self.clock, Leadership(Epoch(epoch), lambda: current))
        books.open(a_job())
        return books

    async def look(self, books: Books, seconds: float = 5.0) -> None:
        self.clock.now_s += seconds
        await books.observe(await look_at(self.cloud, self.clock.wall_s()), FLEET)


@pytest.fixture
def service(bucket: Bucket) -> Service:
    return Service(bucket, HandClock(), PricedCloud())


async def the_cost(books: Books) -> MicroDollars:
    ledger = await books.ledger(JOB)
    assert ledger is not None
    return spent(ledger)


async def test_looks_at_the_cloud_add_up_and_the_next_master_continues_where_the_last_one_wrote(
    service: Service,
) -> None:
    first = service.master()
    service.cloud.start("one", SUBMITTED)
    for _ in range(36):
        await service.look(first, 50.0)
    await first.save()
    await service.look(first, 50.0)
    second = service.master(epoch=2)
    service.cloud.start("two", SUBMITTED + 1800)
    service.clock.now_s = SUBMITTED + 3550
    await service.look(second, 50.0)
    assert await the_cost(second) == USD + USD // 2
    await second.save()
    assert await the_cost(service.master(epoch=3)) == USD + USD // 2


async def test_a_master_that_does_not_know_of_its_successor_writes_nothing_over_it(service: Service) -> None:
    first, second = service.master(), service.master(epoch=2)
    service.cloud.start("one", SUBMITTED)
    await service.look(first, 60.0)
    await first.save()
    await service.look(second, 60.0)
    await second.save()
    await service.look(first, 60.0)
    await first.save()
    assert await the_cost(service.master(epoch=3)) == round(USD * 120 / 3600)
    await service.look(first, 60.0)
    assert await the_cost(first) == round(USD * 240 / 3600), "it goes on from what the other wrote"


async def test_who_does_not_lead_writes_nothing(service: Service) -> None:
    books = service.master(leads=False)
    service.cloud.start("one", SUBMITTED)
    await service.look(books)
    await books.save()
    assert await service.bucket.get(subjects.ledger_key(JOB)) is None


async def test_what_was_not_seen_is_made_up_for_by_the_next_look(service: Service) -> None:
    books = service.master()
    service.cloud.start("one", SUBMITTED)
    await service.look(books)
    service.cloud.away = True
    await service.look(books, 1000.0)
    assert await the_cost(books) == MicroDollars(round(USD * 5 / 3600))
    service.cloud.away = False
    await service.look(books, 795.0)
    assert await the_cost(books) == USD // 2


async def test_another_job_of_the_same_name_begins_at_nothing(service: Service) -> None:
    books = service.master()
    service.cloud.start("one", SUBMITTED)
    await service.look(books, 3600.0)
    await books.save()
    later = structs.replace(a_job(), record=Record(Phase.WAITING, "", Generation(0), 1, SUBMITTED + 3600))
    books.open(later)
    await service.look(books, 1800.0)
    assert await the_cost(books) == USD // 2
    await books.save()
    assert (await service.bucket.get(subjects.ledger_key(JOB))) is not None


@pytest.mark.parametrize("garbled", [b"no ledger", b'{"job": "\xff"}', b'{"version": 99}'])
async def test_a_ledger_that_cannot_be_read_is_refused_and_never_written_over(service: Service, garbled: bytes) -> None:
    await service.bucket.put(subjects.ledger_key(JOB), garbled)
    books = service.master()
    service.cloud.start("one", SUBMITTED)
    for _ in range(2):
        await service.look(books, 1800.0)
        await books.save()
    entry = await service.bucket.get(subjects.ledger_key(JOB))
    assert entry is not None and entry.value == garbled
    with pytest.raises(LedgerUnreadable):
        await books.ledger(JOB)
    assert books.known(JOB) is None, "nothing is known, which is not the same as nothing spent"
    assert books.why_unreadable(JOB)


async def test_a_ledger_that_another_master_made_unreadable_is_left_as_it_is(service: Service) -> None:
    books = service.master()
    service.cloud.start("one", SUBMITTED)
    await service.look(books)
    await books.save()
    await service.bucket.put(subjects.ledger_key(JOB), b'{"version": 2}')
    for _ in range(2):
        await service.look(books)
        await books.save()
    entry = await service.bucket.get(subjects.ledger_key(JOB))
    assert entry is not None and entry.value == b'{"version": 2}'
    assert books.why_unreadable(JOB)


async def test_a_ledger_that_can_be_read_again_continues_and_has_missed_nothing_that_is_still_there(
    service: Service,
) -> None:
    service.cloud.start("one", SUBMITTED)
    before = service.master()
    await service.look(before, 1800.0)
    await before.save()
    entry = await service.bucket.get(subjects.ledger_key(JOB))
    assert entry is not None
    await service.bucket.put(subjects.ledger_key(JOB), b"no ledger")
    books = service.master(epoch=2)
    await service.look(books, 900.0)
    await service.bucket.put(subjects.ledger_key(JOB), entry.value)
    await service.look(books, 900.0)
    assert await the_cost(books) == USD
    await books.save()
    assert await the_cost(service.master(epoch=3)) == USD


def test_looks_do_not_pile_up_while_a_ledger_cannot_be_read() -> None:
    book = Book(JOB, 0, unreadable="it is torn")
    for at_ms in range(100):
        book.see(at_ms, (), {L4: Rate(MicroDollars(1))}, at_ms)
    assert book.pending == []


async def test_who_deletes_a_ledger_that_cannot_be_read_begins_with_the_machines_that_are_there(
    service: Service,
) -> None:
    await service.bucket.put(subjects.ledger_key(JOB), b"no ledger")
    books = service.master()
    service.cloud.start("one", SUBMITTED)
    await service.look(books, 1800.0)
    await service.bucket.delete(subjects.ledger_key(JOB))
    await service.look(books, 1800.0)
    await books.save()
    assert await the_cost(service.master(epoch=2)) == USD


async def test_what_nodes_do_is_heard_from_the_job_and_its_clusters(service: Service) -> None:
    books = service.master()
    for name in ("one", "two"):
        service.cloud.start(name, SUBMITTED)
    await service.look(books, 10.0)
    books.see(CLUSTER, some_observations(wa="one", wb="two"), is_whole=True)
    story = [
        (a_job("wa", "wb", phase=Phase.FORMING), 5.0),
        (a_job("wa", "wb", members=("wa",)), 20.0),
        (a_job("wa", "wb"), 30.0),
        (a_job("wa", phase=Phase.RESHAPING), 4.0),
        (a_job("wa"), 1.0),
    ]
    for job, seconds in story:
        books.hear(job)
        await service.look(books, seconds)
    ledger = await books.ledger(JOB)
    assert ledger is not None
    seconds_of = {line.activity: tally.node_ms // 1000 for line, tally in sums(ledger).lines.items()}
    assert seconds_of == {
        Activity.STARTING: 20,
        Activity.RECOVERING: 10 + 4,
        Activity.WORKING: 20 + 2 * 30 + 1,
        Activity.IDLE: 20 + 4 + 1,
    }


async def test_steps_of_all_workers_are_counted_once_and_samples_continue_after_a_restart(service: Service) -> None:
    def a_report(worker: str, rank: int, first: int, last: int) -> Progress:
        ranks = (RankProgress(Rank(rank), first, last, samples=(last - first + 1) * 8),)
        return Progress(JOB, WorkerId(worker), Generation(1), ranks)

    books = service.master()
    service.cloud.start("one", SUBMITTED)
    for rank in (0, 1):
        books.hear_progress(a_report(f"w{rank}", rank, 0, 499))
    await service.look(books, 3600.0)
    await books.save()
    books = service.master(epoch=2)
    books.hear_progress(a_report("w0", 0, 500, 999))
    await service.look(books)
    ledger = await books.ledger(JOB)
    assert ledger is not None
    assert (ledger.steps, ledger.samples) == (1000, 3 * 500 * 8)
    view = cost_view(ledger, total_steps=2000)
    assert view.forecast is not None
    assert view.micro_usd_per_1000_steps == view.micro_usd
    assert view.forecast.micro_usd == 2 * view.micro_usd


def test_a_certificate_has_what_the_last_report_would_have_told() -> None:
    certificate = SampleCertificate(steps=300, samples=9600)
    heard = replace(new_ledger(JOB, 0), first_step=0, last_step=298, samples=9568)
    view = cost_view(proven(heard, certificate))
    assert (view.steps, view.samples) == (300, 9600)
    assert proven(heard, None) == heard


def test_steps_of_an_earlier_job_are_not_counted_though_the_certificate_has_them() -> None:
    resumed = replace(new_ledger(JOB, 0), first_step=200, last_step=299, samples=3200)
    assert proven(resumed, SampleCertificate(steps=300, samples=9600)) == resumed


def test_samples_of_several_worlds_between_two_looks_all_count() -> None:
    book = Book(JOB, 0)
    book.ledger = new_ledger(JOB, 0)
    for number in range(3):
        book.hear_steps(number, 10 * number, 10 * number + 9, samples=80)
        book.hear_world((Hop("a", "b", number + 1, MicroDollars(0)),))
    ledger = book.current()
    assert ledger is not None
    assert (ledger.steps, ledger.samples) == (30, 240)


def two_regions(job: Job) -> Job:
    """The same job, with one member on each side of the ocean."""
    assert job.record.assignment is not None
    members = (a_member("wa", 0), a_member("wb", 1, "europe-west4-a"))
    world = structs.replace(job.record.assignment, members=members)
    return structs.replace(job, record=structs.replace(job.record, assignment=world))


def a_measured_report(first: int, last: int, gradient_bytes: int) -> Progress:
    ranks = (RankProgress(Rank(0), first, last, measured=StepsMeasured(gradient_bytes=gradient_bytes)),)
    return Progress(JOB, WorkerId("wa"), Generation(1), ranks)


async def test_egress_is_counted_from_what_trainers_measure_without_any_profile_in_the_file(service: Service) -> None:
    books = service.master()
    service.cloud.start("one", SUBMITTED)
    books.hear(two_regions(a_job("wa", "wb")))
    books.hear_progress(a_measured_report(0, 9, 1 << 30))
    await service.look(books)
    ledger = await books.ledger(JOB)
    assert ledger is not None
    there, back = ("us-central1-a", "europe-west4-a"), ("europe-west4-a", "us-central1-a")
    assert {way: sent.sent_bytes for way, sent in ledger.egress.items()} == {there: 10 << 30, back: 10 << 30}
    per_gib = shipped_links().between(*there).egress_micro_usd_per_gib
    assert cost_view(ledger).egress_micro_usd == 2 * 10 * per_gib > 0


async def test_measured_bytes_win_over_those_of_the_file_and_each_step_counts_once(service: Service) -> None:
    books = service.master()
    service.cloud.start("one", SUBMITTED)
    job = two_regions(a_job("wa", "wb"))
    profile = StepProfile(gradient_bytes=1000, compute={"L4": StepTime(0.1)})
    books.hear(structs.replace(job, spec=structs.replace(job.spec, profile=profile)))
    silent = Progress(JOB, WorkerId("wa"), Generation(1), (RankProgress(Rank(0), 0, 9),))
    books.hear_progress(silent)
    await service.look(books)
    for _ in range(2):
        books.hear_progress(a_measured_report(10, 19, 600))
    await service.look(books)
    ledger = await books.ledger(JOB)
    assert ledger is not None
    assert {sent.sent_bytes for sent in ledger.egress.values()} == {10 * 1000 + 10 * 600}


async def test_the_view_adds_up(service: Service) -> None:
    books = service.master()
    for number in range(7):
        service.cloud.start(f"node-{number}", SUBMITTED + number * 1.7)
    for _ in range(20):
        service.cloud.usd += 1
        await service.look(books, 7.3)
    ledger = await books.ledger(JOB)
    assert ledger is not None
    view = cost_view(ledger)
    assert view.machines == 7
    assert view.micro_usd_per_hour == hourly(ledger) == 7 * 21 * USD
    for parts in (view.by_activity, view.by_region, view.by_accelerator, dict(view.by_hour)):
        assert sum(parts.values()) == view.nodes_micro_usd
    assert sum(line.micro_usd for line in view.lines) == view.nodes_micro_usd
    assert view.by_accelerator.keys() == {"L4"}


# Pure helpers


def test_a_market_goes_before_the_catalog_and_what_neither_knows_has_no_price() -> None:
    offer = an_offer("us-central1-a")
    catalog = a_catalog(offer)
    listed = Rate(offer.spot_micro_usd_per_hour, offer.on_demand_micro_usd_per_hour)
    assert rate_of(L4, {}, catalog) == listed
    market = market_of([MarketPrice("us-central1-a", "L4", 700, 900), MarketPrice("us-central1-a", "cpu", 3, 5)])
    assert rate_of(L4._replace(accelerators=2), market, catalog) == Rate(MicroDollars(1400), MicroDollars(1800))
    assert rate_of(L4._replace(spot=False), market, catalog).paid == 900
    cpu = MachineKind("us-central1-a", "e2-standard-4", "", 0, True)
    assert rate_of(cpu, market, catalog) == Rate(MicroDollars(12), MicroDollars(20))
    assert rate_of(cpu, {}, catalog) == Rate(None)


def test_a_ring_sends_over_each_link_between_zones() -> None:
    links: Links = shipped_links()
    zones = ["us-central1-a", "us-central1-a", "europe-west4-a", "europe-west4-a"]
    members = [a_member(f"w{rank}", rank, zone) for rank, zone in enumerate(zones)]
    there, back = hops_of(members, 1000, links)
    assert (there.sender, there.receiver, there.bytes_per_step) == ("europe-west4-a", "us-central1-a", 1500)
    assert (back.sender, back.receiver, back.bytes_per_step) == ("us-central1-a", "europe-west4-a", 1500)
    assert there.micro_usd_per_gib > 0
    assert hops_of(members[:2], 1000, links) == ()
    assert hops_of(members[:1], 1000, links) == ()


def test_a_worker_of_which_no_node_is_known_says_nothing_of_any() -> None:
    assert activities_of(a_job("wa", "wb"), lambda _, worker: "one" if worker == "wa" else "") == {
        "one": Activity.WORKING
    }
    assert activities_of(a_job("wa", phase=Phase.SUCCEEDED), lambda *_: "one") == {"one": Activity.IDLE}


def test_a_worker_that_warms_up_is_not_idle() -> None:
    job = a_job("wa", phase=Phase.WAITING)
    warming = {worker: structs.replace(known, phase=WorkerPhase.WARMING) for worker, known in job.workers.items()}
    assert activities_of(structs.replace(job, workers=warming), lambda *_: "one") == {"one": Activity.STARTING}


async def test_that_a_job_has_no_machines_is_known_to_the_next_master_too(service: Service) -> None:
    books = service.master()
    for _ in range(3):
        await service.look(books, 60.0)
    await books.save()
    ledger = await service.master(epoch=2).ledger(JOB)
    assert ledger is not None
    assert ledger.looked_ms == round(service.clock.wall_s() * 1000)


async def test_of_a_job_that_has_ended_and_has_no_machines_nothing_more_is_kept(service: Service) -> None:
    books = service.master()
    books.hear(a_job(phase=Phase.SUCCEEDED))
    await service.look(books)
    await books.save()
    assert await service.bucket.get(subjects.ledger_key(JOB)) is None


async def test_the_last_look_is_remembered_however_long_ago_it_was(service: Service) -> None:
    books = service.master()
    service.cloud.start("one", SUBMITTED)
    await service.look(books)
    service.cloud.take("one")
    await service.look(books)
    looked_ms = round(service.clock.wall_s() * 1000)
    service.cloud.away = True
    for step in range(5):
        await service.look(books, 1000.0)
        books.hear_progress(a_measured_report(step, step, 1 << 20))
    ledger = await books.ledger(JOB)
    assert ledger is not None
    assert ledger.newest_ms > ledger.looked_ms == looked_ms


def test_where_nobody_looks_nobody_is_blind() -> None:
    clock = HandClock()
    books = Books(cast("Bucket", None), clock, Leadership(Epoch(1), lambda: Epoch(1)))
    clock.now_s += 1000.0
    assert books.why_blind() == ""


async def test_a_refusal_of_the_cloud_is_no_crash_but_after_a_while_nobody_knows_what_there_is(
    service: Service,
) -> None:
    books = service.master()

    class Closed(PricedCloud):
        async def machines(self) -> Any:
            return Refused("the API is disabled", "enable it")

    for seconds, why in ((0.0, ""), (BLIND_S, ""), (1.0, "the API is disabled")):
        service.clock.now_s += seconds
        await books.observe(await look_at(Closed(), service.clock.wall_s()), FLEET)
        assert books.why_blind() == why, "a moment is no matter"
    assert await the_cost(books) == 0, "what a budget assumes is not booked"
    await service.look(books)
    assert books.why_blind() == ""

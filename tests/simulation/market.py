"""The market of a simulation: offers of the fleet, prices and quotas of the cloud, and the account of requests."""

from collections.abc import Mapping

from controlplane.allocator.offers import Offer, pool_plan, pool_ref
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.clouds.interface import PROJECT as EVERYWHERE
from controlplane.clouds.interface import QuotaKey
from controlplane.planning import market as planning
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Option, Quotas
from controlplane.throughput.profile import Profile
from messages.ids import ClusterName, JobName
from simulator.cloud.model import quotas, requests
from simulator.cloud.model.spot import price_of
from simulator.market.markets import ACCELERATORS as PRICES
from simulator.market.markets import Market as Place
from tests.allocator.account import Account
from tests.allocator.wire import Wire
from tests.planning.builders import a_market, a_small_profile
from tests.simulation.clockwork import Clockwork
from tests.simulation.cloud import ACCELERATORS, PROJECT, Cloud, spec_of

US, EU = ClusterName("us"), ClusterName("eu")
REGIONS = {US: "us-central1", EU: "europe-west4"}
KINDS = (("n1-standard-8", "T4"), ("g2-standard-8", "L4"))
STRAY_S = 0.3
"""Seconds for which a request may be in flight after its sender lost the lease; less than the lease leaves."""


class Market:
    def __init__(self, clockwork: Clockwork, job: JobName, gpus: int) -> None:
        self.clockwork = clockwork
        self.job = job
        self.gpus = gpus
        """GPUs of a node."""
        self.offers = self._some_offers()
        self.profile: Profile = a_small_profile(gradient_bytes=clockwork.chance.choice((0, 10**6)))
        self.cloud = Cloud(clockwork, REGIONS)
        self.cloud.limits = {pool_ref(job, offer): offer.max_nodes for offer in self.offers}
        self.wire = Wire(clockwork, self.cloud, stray_s=STRAY_S)
        self.account = Account(clockwork, self.cloud, self.wire)

    def _some_offers(self) -> tuple[Offer, ...]:
        chance = self.clockwork.chance
        kinds = KINDS[:1] if self.gpus > 1 else KINDS
        every = [
            (cluster, f"{region}-{letter}", *kind)
            for cluster, region in REGIONS.items()
            for letter in "ab"
            for kind in kinds
        ]
        return tuple(
            Offer(cluster, zone, machine_type, chance.randint(2, 6), accelerator, self.gpus)
            for cluster, zone, machine_type, accelerator in chance.sample(every, chance.randint(2, 4))
        )

    def priced(self, criteria: Criteria) -> planning.Market:
        limits: dict[MachineKind, int] = {}
        for offer in self.offers:
            limits[offer.kind] = limits.get(offer.kind, 0) + offer.max_nodes
        found = [
            Option(
                choice=offer.kind,
                gpus=self.gpus,
                micro_usd_per_hour=MicroDollars(self.gpus * self.price_of(offer)),
                network_bit_per_s=16e9,
                limit=limits[offer.kind],
            )
            for offer in self.offers
        ]
        return planning.Market(a_market(*found).options, a_market(*found).links, self.quotas())

    def price_of(self, offer: Offer) -> int:
        return price_of(self.cloud.state, self.place_of(offer))

    def on_demand_of(self, offer: Offer) -> int:
        return PRICES[ACCELERATORS[offer.kind.accelerator]].on_demand

    def dearest(self) -> MicroDollars:
        """Hourly price of the most expensive on-demand node."""
        return MicroDollars(max(map(self.on_demand_of, self.offers)) * self.gpus)

    def place_of(self, offer: Offer) -> Place:
        return Place(offer.zone, ACCELERATORS[offer.kind.accelerator])

    def quotas(self) -> Quotas:
        state = self.cloud.state
        needs: dict[MachineKind, Mapping[QuotaKey, int]] = {}
        left: dict[QuotaKey, int] = {}
        for offer in self.offers:
            spec = spec_of(pool_plan(self.job, offer, 0))
            found = {}
            for (scope, metric), amount in quotas.needs(state, PROJECT, spec, offer.zone).items():
                key = QuotaKey(scope or EVERYWHERE, metric)
                found[key] = amount
                left[key] = quotas.limit_of(state, PROJECT, scope, metric)
            needs[offer.kind] = found
        return Quotas(left, needs)

    def restock(self) -> None:
        """Makes machines available everywhere from now on."""
        for offer in self.offers:
            self.cloud.ask(requests.StockOut(self.place_of(offer), on=False))
            self.cloud.ask(requests.SetCapacity(self.place_of(offer), None))
        for project, scope, metric in list(self.cloud.state.quotas):
            self.cloud.ask(requests.SetQuota(project, scope, metric, None))

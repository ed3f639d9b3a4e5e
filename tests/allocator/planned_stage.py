"""A stage for planned jobs: a market with chosen prices, and plans that are made when the test calls for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controlplane.allocator import events
from controlplane.allocator.demand import Demand
from controlplane.allocator.effects import AllocatorEffect, Announce, Change, CreatePool, MakePlan, ResizePool
from controlplane.allocator.offers import Offer
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import new_allocator
from controlplane.planning.market import Option
from controlplane.planning.plan import Plan, plan
from controlplane.planning.tuning import Tuning
from messages.ids import ClusterName
from tests.allocator.stage import EU, JOB, US, Stage, asked, of
from tests.planning.builders import (
    HOLLAND,
    IOWA_A,
    IOWA_B,
    MACHINES,
    OREGON,
    a_market,
    a_small_profile,
    an_option,
    some_criteria,
)

TUNING = Tuning(alternatives=1)
GKE = {"L4": "nvidia-l4", "A100-40": "nvidia-tesla-a100", "T4": "nvidia-tesla-t4"}


def offer_in(
    zone: str,
    accelerator: str = "L4",
    *,
    at_most: int = 8,
    cluster: ClusterName = US,
    spot: bool = True,
) -> Offer:
    return Offer(cluster, zone, MACHINES[accelerator], at_most, GKE[accelerator], 1, spot)


IOWA, IOWA_TOO, WEST = offer_in(IOWA_A), offer_in(IOWA_B), offer_in(OREGON)
FAR = offer_in(HOLLAND, cluster=EU)


@dataclass
class PlannedStage(Stage):
    def sees_prices(self, *options: Option, **market: Any) -> list[AllocatorEffect]:
        return self.happens(events.MarketSeen(self.now_s, a_market(*options, **market)))

    def plans(self, corrected: Callable[[Plan], Plan] = lambda made: made) -> list[AllocatorEffect]:
        """Make the plan that was last requested."""
        [*_, ask] = of(self.effects, MakePlan)
        assert self.allocator.plans.asked is not None, "no plan is being made"
        made = plan(ask.criteria, ask.profile, ask.market, ask.current, TUNING)
        return self.happens(events.Planned(self.now_s, ask.number, corrected(made)))

    def settles(self) -> list[AllocatorEffect]:
        """Let time pass and make requested plans, until nothing new is to plan."""
        found: list[AllocatorEffect] = []
        for _ in range(20):
            if self.allocator.plans.asked is None:
                found += self.ticks(0.0)
                found += self.ticks(self.allocator.settings.plan_settle_s)
            if self.allocator.plans.asked is None:
                return found
            found += self.plans()
        raise AssertionError("plans are made for ever")

    def gets(self, *effects: AllocatorEffect) -> None:
        """End all raises with success, and add their nodes."""
        for effect in effects:
            if isinstance(effect, CreatePool | ResizePool):
                self.ends(effect)
                self.fills(self.allocator.pools[effect.ref].offer)
        for cluster in sorted({offer.cluster for offer in self.allocator.offers}):
            self.sees(cluster)

    def words(self, effects: list[AllocatorEffect]) -> list[tuple[str, ...]]:
        return [each for each in asked(effects, self.allocator.offers) if each != ("list",)]


def a_planned_stage(
    *offers: Offer,
    wanted: int = 8,
    settings: AllocatorSettings | None = None,
    profile: Any = None,
    measured_by_s: float | None = None,
    **criteria: Any,
) -> PlannedStage:
    """Nothing is listed and no price is known."""
    given = {"min_workers": 4, "max_workers": 4, **criteria}
    demand = Demand(some_criteria(**given), profile or a_small_profile())
    offers = offers or (IOWA, IOWA_TOO, WEST)
    made = new_allocator(
        JOB, offers, wanted=wanted, at_s=100.0, settings=settings, demand=demand, measured_by_s=measured_by_s
    )
    return PlannedStage(made)


def prices_of(offers: tuple[Offer, ...], **usd_by_zone: float) -> list[Option]:
    """Prices by zone name with `_` for `-`; 0.5 by default."""
    names = {gke: name for name, gke in GKE.items()}
    return [
        an_option(
            offer.zone,
            names[offer.accelerator or ""],
            usd_by_zone.get(offer.zone.replace("-", "_"), 0.5),
            spot=offer.spot,
            limit=offer.max_nodes,
        )
        for offer in offers
    ]


def a_running_stage(*offers: Offer, options: list[Option] | None = None, **given: Any) -> PlannedStage:
    """A stage with all nodes of the plan."""
    stage = a_planned_stage(*offers, **given)
    stage.ticks()
    stage.lists()
    stage.sees_prices(*(options or prices_of(stage.allocator.offers)))
    for _ in range(10):
        made = stage.settles()
        if not any(isinstance(effect, Change) for effect in made):
            break
        stage.gets(*made)
    return stage


def said(effects: list[AllocatorEffect], kind: str) -> list[Announce]:
    return [each for each in of(effects, Announce) if each.kind == kind]

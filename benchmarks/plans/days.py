"""Simulates a policy in a market over time: preempted machines, a pause for every change, steps and dollars."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from benchmarks.plans.markets import DAY_S, PROFILE, TICK_S, Tick, market_at
from benchmarks.plans.policies import Policy
from controlplane.catalog.links import Links
from controlplane.planning.criteria import SECONDS_PER_HOUR, Criteria
from controlplane.planning.market import Market, Nodes
from controlplane.planning.scoring import score
from controlplane.planning.tuning import Tuning

PAUSE_S: Final = 30.0
BOOT_S: Final = 150.0
_TUNING: Final = Tuning()


class Outcome(Struct, frozen=True):
    usd_per_1000_steps: float | None
    steps_per_day: float
    changes: int


def lived_through(policy: Policy, ticks: Sequence[Tick], criteria: Criteria, links: Links) -> Outcome:
    """The outcome of a policy. A change costs a pause, another accelerator also a boot; both are paid for."""
    micro_usd = steps = 0.0
    changes = 0
    held: Nodes = {}
    ends_s = [*(tick.at_s for tick in ticks[1:]), ticks[-1].at_s + TICK_S]
    for tick, end_s in zip(ticks, ends_s, strict=True):
        market = market_at(tick.quotes, links)
        left = _left(held, market)
        nodes = policy(criteria, market, left)
        changed = nodes != held and bool(held)
        changes += changed
        pause_s = (PAUSE_S + BOOT_S * _is_another(nodes, held)) if changed else 0.0
        held = nodes
        found = score(PROFILE, market, nodes, _TUNING) if nodes else None
        length_s = end_s - tick.at_s
        micro_usd += _machines(nodes, market) * length_s / SECONDS_PER_HOUR
        if found is not None and found.workers >= criteria.min_workers:
            trained_s = max(0.0, length_s - pause_s)
            steps += trained_s * found.estimate.steps_per_s
            micro_usd += found.estimate.egress_micro_usd_per_hour * trained_s / SECONDS_PER_HOUR
    whole_s = ends_s[-1] - ticks[0].at_s
    usd = micro_usd / 1_000_000
    return Outcome(usd / steps * 1000 if steps else None, steps * DAY_S / whole_s, changes)


def _machines(nodes: Nodes, market: Market) -> int:
    """Micro-dollars per hour of all machines, even if they are too few to train."""
    return sum(count * market.options[choice].micro_usd_per_hour for choice, count in nodes.items())


def _left(held: Nodes, market: Market) -> Nodes:
    """The nodes that the market has not preempted."""
    left = {
        choice: min(count, market.options[choice].limit) for choice, count in held.items() if choice in market.options
    }
    return {choice: count for choice, count in left.items() if count}


def _is_another(nodes: Nodes, held: Nodes) -> bool:
    before, after = ({choice.accelerator for choice in each} for each in (held, nodes))
    return bool(before and after and before != after)

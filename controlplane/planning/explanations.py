"""Texts for people: the reasons of a plan."""

import math
from collections.abc import Sequence

from controlplane.catalog.money import MICRO_PER_USD, usd_text
from controlplane.clouds.interface import QuotaKey
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Nodes
from controlplane.planning.scoring import Score, gain, limit_of
from messages.criteria import Objective

_WANTS = {
    Objective.COST: "the fewest dollars for a step, risk included",
    Objective.THROUGHPUT: "the most steps in a second",
    Objective.DEADLINE: "the fewest dollars for a step that is done in time, risk included",
}
_WANTS_UNMEASURED = {
    **_WANTS,
    Objective.COST: "the lowest price for an hour of GPU, with risk and distance weighed",
    Objective.THROUGHPUT: "the most computing power by the makers' peak figures",
}
UNMEASURED = "it runs as fast as its limits allow until its steps are measured; then the plan follows its deadline"
DEADLINE_OVER = "the deadline is over, so the job runs as fast as possible"
COSTS_MONEY = "would cost money"
NOT_ENOUGH = "not enough to move running nodes"
IDLE_GPUS = "its machines have GPUs, but pod.gpu is false: the ranks train on the CPU; set pod.gpu: true to use them"

VISIBLE = 0.0005
VISIBLE_BESIDE_MONEY = 0.005
"""The smallest difference of speed that is shown when the objective is cost."""
VISIBLE_USD = 0.005


def describe_quota(key: QuotaKey) -> str:
    return f"quota {key.metric} in {key.scope}"


def figures(score: Score) -> str:
    estimate = score.estimate
    if score.is_assumed:
        return f"{_nodes(score.workers)}, ${usd_text(estimate.machines_micro_usd_per_hour, 2)} an hour for machines"
    return (
        f"{_nodes(score.workers)}, {estimate.steps_per_s:.3g} steps/s, "
        f"${usd_text(estimate.micro_usd_per_hour, 2)} an hour, "
        f"${usd_text(estimate.micro_usd_per_1000_steps, 2)} for 1,000 steps"
    )


def places(nodes: Nodes) -> str:
    return ", ".join(
        f"{count} × {choice.accelerator} in {choice.zone}{'' if choice.spot else ' on demand'}"
        for choice, count in nodes.items()
    )


def begins(score: Score, criteria: Criteria) -> str:
    wants = _WANTS_UNMEASURED if score.is_assumed else _WANTS
    return f"{wants[criteria.objective]}{_late(score, criteria)}: {figures(score)}"


def keeps(criteria: Criteria, *, is_assumed: bool) -> str:
    wants = _WANTS_UNMEASURED if is_assumed else _WANTS
    return f"the running nodes have {wants[criteria.objective]} of all available ones"


def too_little(gained: float, threshold: float) -> str:
    return f"the running nodes stay: a move would gain {gained:.1%}, and {threshold:.0%} is required"


def does_not_pay(gained: float, life_s: float, pause_s: float) -> str:
    return (
        f"the running nodes stay: a gain of {gained:.1%} over an expected life of {_duration(life_s)} is less than "
        f"the pause of {_duration(pause_s)}"
    )


def must(kind: str, score: Score, criteria: Criteria) -> str:
    return f"the running nodes exceed the limits: {kind} to {figures(score)}{_late(score, criteria)}"


def pays(kind: str, score: Score, gained: float, life_s: float, criteria: Criteria) -> str:
    worth = f"gains {gained:.1%}"
    if math.isinf(gained):
        worth = "meets the deadline" if score.estimate.micro_usd_per_hour else "costs nothing"
    return f"{kind} to {figures(score)}: {worth} over an expected life of {_duration(life_s)}{_late(score, criteria)}"


def waits(
    criteria: Criteria,
    market: Market,
    current: CurrentCapacity,
    limited_by: Sequence[QuotaKey],
    *,
    is_proven: bool = True,
) -> str:
    """Why the job waits. `is_proven` is False if the search ended without a proof that no placement exists."""
    by_type: dict[str, int] = {}
    for choice in market.options:
        by_type[choice.accelerator] = by_type.get(choice.accelerator, 0) + limit_of(market, current, choice)
    if not by_type:
        return "no offer meets the job's criteria"
    most = max(by_type.values())
    if most < criteria.min_workers:
        return f"{criteria.min_workers} workers are needed and {most} of one type are available now"
    workers = "1 worker" if criteria.min_workers == 1 else f"{criteria.min_workers} workers"
    text = f"quotas, the share on demand and the cap on money an hour do not allow {workers}"
    if not is_proven:
        text = "no placement was found, but the search did not try all of them"
    return f"{text}; {no_room(limited_by)}" if limited_by else text


def no_room(limited_by: Sequence[QuotaKey]) -> str:
    """Text that names the quotas that keep a job from more nodes."""
    have = "has" if len(limited_by) == 1 else "have"
    return f"{', '.join(map(describe_quota, limited_by))} {have} no room for another node"


def loses(other: Score, chosen: Score, criteria: Criteria) -> str:
    """Why another placement was not chosen: its difference in money and speed."""
    behind = gain(chosen, other, criteria)
    if math.isinf(behind) and behind > 0:
        return "would miss the deadline" if _late(other, criteria) else COSTS_MONEY
    money = other.estimate.micro_usd_per_1000_steps / max(chosen.estimate.micro_usd_per_1000_steps, 1) - 1
    speed = other.estimate.steps_per_s / chosen.estimate.steps_per_s - 1
    for_speed = criteria.objective is Objective.THROUGHPUT or bool(_late(other, criteria))
    compared = _more(money, "dearer", "cheaper", "as dear")
    compared += ", " + _more(speed, "faster", "slower", "as fast", VISIBLE if for_speed else VISIBLE_BESIDE_MONEY)
    if behind < 0:
        return f"{compared}; {NOT_ENOUGH}"
    compared = ", ".join([compared, *_risk(other, chosen)])
    if for_speed or abs(behind - money) < VISIBLE:
        return compared
    return f"{compared}; {_more(behind, 'worse', 'better', 'as good')} with risk"


def differs(other: Nodes, other_score: Score, chosen: Nodes, chosen_score: Score) -> str:
    """Why another placement was not chosen before steps are measured: its price, number of nodes, zones and risk."""
    price = other_score.machines_per_node / max(chosen_score.machines_per_node, 1) - 1
    parts = [f"{_more(price, 'dearer', 'cheaper', 'the same price')} for an hour of GPU"]
    if other_score.workers != chosen_score.workers:
        parts.append(_nodes(other_score.workers))
    if _spread(other) != _spread(chosen):
        parts.append(_spread(other))
    return ", ".join([*parts, *_risk(other_score, chosen_score)])


def _spread(nodes: Nodes) -> str:
    regions, zones = {choice.region for choice in nodes}, {choice.zone for choice in nodes}
    if len(regions) > 1:
        return f"in {len(regions)} regions"
    return f"in {len(zones)} zones" if len(zones) > 1 else "in one zone"


def _risk(other: Score, chosen: Score) -> list[str]:
    risk = (other.risk_micro_usd_per_hour - chosen.risk_micro_usd_per_hour) / MICRO_PER_USD
    return [f"{risk:+.2f} USD an hour of risk"] if abs(risk) >= VISIBLE_USD else []


def _late(score: Score, criteria: Criteria) -> str:
    if criteria.objective is not Objective.DEADLINE or score.estimate.steps_per_s >= criteria.min_steps_per_s * (
        1 - 1e-9
    ):
        return ""
    if math.isinf(criteria.min_steps_per_s):
        return f" ({DEADLINE_OVER})"
    return f" (too slow: {criteria.min_steps_per_s:.3g} steps/s are needed, but no available placement is faster)"


def _more(part: float, above: str, below: str, equal: str, visible: float = VISIBLE) -> str:
    if abs(part) < visible:
        return equal
    return f"{abs(part):.1%} {above if part >= 0 else below}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.3g} h" if seconds >= 3600 else f"{seconds:.3g} s"

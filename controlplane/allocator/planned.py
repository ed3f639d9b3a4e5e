"""What people are told of a plan that is followed: where, how fast, for how much, and what lost by how much."""

from controlplane.allocator.effects import Announce
from controlplane.allocator.state import Plans
from controlplane.catalog.money import usd_text
from controlplane.planning.plan import Change, Plan
from controlplane.planning.sentences import no_room, places
from messages.events import LOSER_FIELD
from messages.jobs import Scalar


def planned(before: Plans, after: Plans) -> list[Announce]:
    """Once, as long as neither the placement nor the kind of change is another."""
    if after.plan is None or after.told is None or after.told == before.told:
        return []
    plan = after.plan
    where = places(plan.placement) or "nothing"
    why = plan.why if plan.change is Change.WAIT or not plan.limited_by else f"{plan.why}; {no_room(plan.limited_by)}"
    return [Announce("planned", f"aiming at {where} ({plan.change.value})", why, _figures(plan) | _lost(plan))]


def _figures(plan: Plan) -> dict[str, Scalar | None]:
    found: dict[str, Scalar | None] = {"change": plan.change.value, "workers": sum(plan.placement.values())}
    if plan.score is None:
        return found
    estimate = plan.score.estimate
    if plan.score.is_assumed:
        found["usd_per_hour"] = usd_text(estimate.machines_micro_usd_per_hour)
    else:
        found |= {
            "steps_per_s": round(estimate.steps_per_s, 6),
            "usd_per_hour": usd_text(estimate.micro_usd_per_hour),
            "usd_per_1000_steps": usd_text(estimate.micro_usd_per_1000_steps),
        }
    return found


def _lost(plan: Plan) -> dict[str, Scalar | None]:
    return {
        f"{LOSER_FIELD}{number}": f"{places(other.nodes)}: {other.why_not}"
        for number, other in enumerate(plan.alternatives, start=1)
    }

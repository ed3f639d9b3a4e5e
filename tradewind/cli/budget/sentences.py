"""A job's budget in words."""

from collections.abc import Iterator

from controlplane.catalog.money import usd_text
from messages.budgets import BudgetView
from messages.criteria import WhenSpent

ACTIONS = {
    WhenSpent.PAUSE: "it gives its machines back and waits for a larger budget or fewer workers",
    WhenSpent.ON_DEMAND_OFF: "it lets its machines on demand go, and pauses if that is not enough",
    WhenSpent.STOP: "it is stopped",
}


def sentences(view: BudgetView) -> Iterator[str]:
    if view.micro_usd_total is None:
        yield f"Job {view.job} has no budget: {_usd(view.micro_usd)} spent so far, with no limit."
        if view.note:
            yield view.note
        return
    yield f"Job {view.job} may spend {_usd(view.micro_usd_total)}: {_usd(view.micro_usd)} are spent."
    if view.note:
        yield view.note
    if view.assumed_micro_usd:
        yield _row("unseen", f"up to {_usd(view.assumed_micro_usd)} more, since the cloud last listed its machines")
    yield _row("left", _left(view, view.micro_usd_total))
    yield _row("when spent", ACTIONS[view.when_spent])
    if view.spot_only:
        yield _row("spot only", view.spot_only)
    if view.paused:
        yield _row("paused", view.paused)


def _left(view: BudgetView, total: int) -> str:
    kept = f"{usd_text(view.reserve_micro_usd)} of it are kept to give its machines back"
    left = total - view.micro_usd - view.assumed_micro_usd
    if left < 0:
        return f"nothing: {_usd(-left)} more than that {'may be' if view.assumed_micro_usd else 'are'} spent"
    return f"{_usd(left)}; {kept}"


def _usd(amount: int) -> str:
    return f"{usd_text(amount)} USD"


def _row(name: str, text: str) -> str:
    return f"  {name:<12} {text}"

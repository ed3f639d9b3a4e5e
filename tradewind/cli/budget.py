"""`tradewind budget`: the budget of a job, and raising it."""

from collections.abc import Iterator

import click

from messages.budgets import BudgetView
from messages.criteria import WhenSpent
from tradewind.client.api import Api
from tradewind.terminal import output

ACTIONS = {
    WhenSpent.PAUSE: "the job releases its machines and waits for a larger budget or fewer workers",
    WhenSpent.ON_DEMAND_OFF: "the job releases its on-demand machines, and pauses if that is not enough",
    WhenSpent.STOP: "the job stops",
}


async def show_budget(api: Api, job: str, raise_to_usd: float | None, *, as_json: bool) -> int:
    view = await (api.budget(job) if raise_to_usd is None else api.raise_budget(job, raise_to_usd))
    if as_json:
        output.echo_json(view)
        return 0
    for line in budget_lines(view):
        click.echo(line)
    more = f"tradewind budget {view.job} USD" if view.paused else f"tradewind cost {view.job}"
    output.hint(more)
    return 0


def budget_lines(view: BudgetView) -> Iterator[str]:
    if view.micro_usd_total is None:
        yield f"Job {view.job} has no budget: {output.usd(view.micro_usd)} spent so far."
        if view.note:
            yield view.note
        return
    spent = f"{output.usd(view.micro_usd)} spent so far"
    yield f"Job {view.job} has a budget of {output.usd(view.micro_usd_total)}: {spent}."
    if view.note:
        yield view.note
    if view.assumed_micro_usd:
        yield output.labelled(
            "unseen", f"up to {output.usd(view.assumed_micro_usd)} more, since the cloud last listed its machines"
        )
    yield output.labelled("left", _left(view, view.micro_usd_total))
    yield output.labelled("when spent", ACTIONS[view.when_spent])
    if view.spot_only:
        yield output.labelled("spot only", view.spot_only)
    if view.paused:
        yield output.labelled("paused", view.paused)


def _left(view: BudgetView, total: int) -> str:
    left = total - view.micro_usd - view.assumed_micro_usd
    if left < 0:
        return f"nothing: {'up to ' if view.assumed_micro_usd else ''}{output.usd(-left)} over the budget"
    return f"{output.usd(left)}, with a reserve of {output.usd_text(view.reserve_micro_usd)} to release its machines"

"""`tradewind explain`: the last decisions about a job, with their reasons and the rejected placements.

A decision is an event of certain kinds. Workers that joined or left since the last world are shown with the next one.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import click
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from messages.api import EventLine
from messages.events import LOSER_FIELD, EventKind
from messages.jobs import Scalar
from runtime.plain_text import plain, plain_lines
from tradewind.client.api import Api
from tradewind.terminal import output, tables

INDENT = 10
FIGURES = {
    "workers": "{} workers",
    "steps_per_s": "{} steps/s",
    "usd_per_hour": "{} USD an hour",
    "usd_per_1000_steps": "{} USD for 1,000 steps",
}
LEAVING = "leaving"


async def show_decisions(api: Api, job: str, last: int, *, as_json: bool) -> int:
    """Shows decisions of all masters: events are stored on the bus."""
    view = await api.job(job)
    made = list(decisions([event async for event in api.events(job)]))
    if as_json:
        for decision in made[-last:]:
            output.echo_json(decision)
        return 0
    if not made:
        click.echo(f"Job {job} has no decisions yet: it is {view.phase}.")
        output.hint(f"tradewind status {job}")
        return 0
    tables.console().print(shown(made[-last:]))
    if len(made) > last:
        click.echo(f"{output.count(len(made) - last, 'earlier decision')}; --last {len(made)} shows all.", err=True)
    output.hint(f"tradewind events {job}")
    return 0


class About(StrEnum):
    PLACEMENT = "placement"
    POOLS = "pools"
    SHORTAGE = "shortage"
    WORLD = "world"
    BUDGET = "budget"
    JOB = "job"


ABOUT: dict[str, About] = {
    EventKind.PLANNED: About.PLACEMENT,
    EventKind.CAPACITY_IGNORED: About.PLACEMENT,
    EventKind.LIST_PRICES_USED: About.PLACEMENT,
    EventKind.MARKET_PRICES_USED: About.PLACEMENT,
    EventKind.POOL_FOUND: About.POOLS,
    EventKind.POOL_CREATED: About.POOLS,
    EventKind.POOL_RAISED: About.POOLS,
    EventKind.POOL_LOWERED: About.POOLS,
    EventKind.POOL_DELETED: About.POOLS,
    EventKind.NODES_REMOVED: About.POOLS,
    EventKind.CAPACITY_REACHED: About.POOLS,
    EventKind.CAPACITY_GONE: About.POOLS,
    EventKind.NODE_UNDERUSED: About.POOLS,
    EventKind.NODE_GIVEN_BACK: About.POOLS,
    EventKind.ZONE_STOCKED_OUT: About.SHORTAGE,
    EventKind.QUOTA_EXCEEDED: About.SHORTAGE,
    EventKind.CLOUD_REFUSED: About.SHORTAGE,
    EventKind.LISTING_FAILED: About.SHORTAGE,
    EventKind.STARTS_FAILED: About.SHORTAGE,
    EventKind.STARTS_WORK: About.SHORTAGE,
    EventKind.POOL_TROUBLE: About.SHORTAGE,
    EventKind.CLUSTER_REFUSED: About.SHORTAGE,
    EventKind.SHARE_MOVED: About.SHORTAGE,
    EventKind.SHARES_RENEWED: About.SHORTAGE,
    EventKind.WORLD_DECIDED: About.WORLD,
    EventKind.WORLD_HALTED: About.WORLD,
    EventKind.JOB_WAITING: About.WORLD,
    EventKind.BUDGET_RAISED: About.BUDGET,
    EventKind.JOB_PAUSED: About.BUDGET,
    EventKind.JOB_CONTINUED: About.BUDGET,
    EventKind.ON_DEMAND_OFF: About.BUDGET,
    EventKind.ON_DEMAND_ON: About.BUDGET,
    EventKind.JOB_SUBMITTED: About.JOB,
    EventKind.JOB_SCALED: About.JOB,
    EventKind.JOB_RELOADING: About.JOB,
    EventKind.JOB_SUCCEEDED: About.JOB,
    EventKind.JOB_FAILED: About.JOB,
    EventKind.JOB_STOPPED: About.JOB,
}
"""The kinds of events that tell of a decision."""


class Loser(Struct, frozen=True):
    placement: str
    why_not: str


class Explained(Struct, frozen=True):
    at: float
    """Unix seconds."""
    about: About
    kind: str
    text: str
    why: str
    fields: dict[str, Scalar | None]
    """Fields of the event, without those of `lost` and `left`."""
    came: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    """Workers that left, or leave with a prepared world, and why."""
    lost: tuple[Loser, ...] = ()
    """Rejected placements, the best first."""


def decisions(events: Iterable[EventLine]) -> Iterator[Explained]:
    """The decisions about the newest job of this name, in the order of its events."""
    made: list[Explained] = []
    came: dict[str, None] = {}
    left: dict[str, str] = {}
    noticed: dict[str, str] = {}
    reported: set[str] = set()
    """Workers that left with a prepared world; their later end is not reported again."""
    for event in events:
        if event.kind == EventKind.JOB_SUBMITTED:
            made, came, left, noticed, reported = [], {}, {}, {}, set()
        worker = str(event.fields.get("worker") or "")
        if event.kind == EventKind.WORKER_JOINED:
            came[worker] = None
        elif event.kind == EventKind.WORKER_GONE and worker in came:
            del came[worker]
        elif event.kind == EventKind.WORKER_NOTICED:
            noticed[worker] = event.why
        elif event.kind == EventKind.WORKER_GONE and worker not in reported:
            left[worker] = event.why
        about = ABOUT.get(event.kind)
        if about is None:
            continue
        if event.kind == EventKind.WORLD_DECIDED:
            leaving = [
                each for each in str(event.fields.get(LEAVING) or "").split(", ") if each and each not in reported
            ]
            left |= {each: noticed.get(each, "") for each in leaving}
            reported.update(leaving)
            made.append(_explained(event, about, tuple(came), tuple(left.items())))
            came, left = {}, {}
        else:
            made.append(_explained(event, about))
    return iter(made)


def _explained(
    event: EventLine, about: About, came: tuple[str, ...] = (), left: tuple[tuple[str, str], ...] = ()
) -> Explained:
    numbered = sorted((int(key[len(LOSER_FIELD) :]), key) for key in event.fields if _is_loser(key))
    lost = tuple(_loser(str(event.fields[key])) for _, key in numbered)
    fields = {key: value for key, value in event.fields.items() if key != LEAVING and not _is_loser(key)}
    return Explained(event.at, about, event.kind, event.text, event.why, fields, came, left, lost)


def _is_loser(key: str) -> bool:
    return key.startswith(LOSER_FIELD) and key[len(LOSER_FIELD) :].isdecimal()


def _loser(text: str) -> Loser:
    placement, _, why_not = text.partition(": ")
    return Loser(placement, why_not)


def shown(made: Sequence[Explained]) -> RenderableType:
    return Group(*(part for decision in made for part in _parts(decision)))


def _parts(decision: Explained) -> Iterator[RenderableType]:
    clock = time.strftime("%H:%M:%S", time.localtime(decision.at))
    yield Text.assemble((clock, "dim"), "  ", (plain(decision.text), "bold"))
    for line in lines(decision):
        yield Padding(Text(line), (0, 0, 0, INDENT), expand=False)
    if decision.lost:
        yield Padding(_losers(decision.lost), (0, 0, 0, INDENT), expand=False)


def lines(decision: Explained) -> Iterator[str]:
    for number, line in enumerate(plain_lines(decision.why.rstrip("\n")) if decision.why else []):
        yield f"why: {line}" if number == 0 else f"     {line}"
    figures = _figures(decision.fields)
    if figures:
        yield f"expected: {figures}"
    if decision.came:
        yield f"joined: {plain(', '.join(decision.came))}"
    for worker, why in decision.left:
        yield f"left: {plain(worker)}" + (f" ({output.first_line(why)})" if why else "")


def _figures(fields: Mapping[str, Scalar | None]) -> str:
    """The figures of a placement; other decisions have none."""
    if "steps_per_s" not in fields and "usd_per_hour" not in fields:
        return ""
    reported = [form.format(_number(fields[name])) for name, form in FIGURES.items() if fields.get(name) is not None]
    return ", ".join(reported)


def _number(value: Scalar | None) -> str:
    """The number as text. Money may already be text, to keep its decimals."""
    return output.number(value) if isinstance(value, int | float) else str(value)


def _losers(lost: Sequence[Loser]) -> Table:
    return tables.table(("REJECTED", "WHY"), ((each.placement, each.why_not) for each in lost))

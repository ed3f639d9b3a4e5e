"""Decisions for people: when and what, then the why and all that belongs to it, indented."""

import time
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from messages.jobs import Scalar
from runtime.plain_text import plain, plain_lines
from tradewind.cli import output, tables
from tradewind.cli.explain.decisions import Explained, Loser

INDENT = 10
FIGURES = {
    "workers": "{} workers",
    "steps_per_s": "{} steps/s",
    "usd_per_hour": "{} USD an hour",
    "usd_per_1000_steps": "{} USD for 1,000 steps",
}


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
        yield f"came: {plain(', '.join(decision.came))}"
    for worker, why in decision.left:
        yield f"left: {plain(worker)}" + (f" ({output.first_line(why)})" if why else "")


def _figures(fields: Mapping[str, Scalar | None]) -> str:
    """Only of a placement: no other decision has its numbers."""
    if "steps_per_s" not in fields and "usd_per_hour" not in fields:
        return ""
    told = [form.format(_number(fields[name])) for name, form in FIGURES.items() if fields.get(name) is not None]
    return ", ".join(told)


def _number(value: Scalar | None) -> str:
    """Money may come as text, so that it is shown as it was counted."""
    return output.number(value) if isinstance(value, int | float) else str(value)


def _losers(lost: Sequence[Loser]) -> Table:
    return tables.table(("NOT CHOSEN", "WHY"), ((each.placement, each.why_not) for each in lost))

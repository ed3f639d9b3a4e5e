"""Shows the demonstration: a live view on a terminal, plain lines elsewhere."""

import asyncio
import time

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from messages.api import EventLine
from tradewind.demo.story import Story
from tradewind.terminal import output, tables

DRAWS_A_SECOND = 4
LINE_EVERY_S = 2.0
EVENTS_SHOWN = 8
BAR_WIDTH = 40
SUBMITTING = "submitting the job"


async def draw(story: Story) -> None:
    """Draws the live view until cancelled."""
    with Live(console=tables.console(), auto_refresh=False, transient=True) as live:
        while True:
            live.update(picture(story), refresh=True)
            await asyncio.sleep(1 / DRAWS_A_SECOND)


async def tell(story: Story, *, err: bool) -> None:
    """Prints the progress when it changes, until cancelled."""
    reported = ""
    while True:
        line = summary(story)
        if line != reported:
            reported = line
            click.echo(f"{time.strftime('%H:%M:%S')}  {line}", err=err)
        await asyncio.sleep(LINE_EVERY_S)


def print_event(event: EventLine, *, err: bool) -> None:
    """Prints an event with the first line of its reason; `tradewind events` shows all lines."""
    line, *_ = output.event_line(event).splitlines()
    click.echo(line, err=err)


def picture(story: Story) -> RenderableType:
    view = story.view
    if view is None:
        return Text(SUBMITTING)
    why = output.first_line(view.why)
    head = Table.grid(padding=(0, 1))
    head.add_row(Text("tradewind demo", style="bold"), tables.phase_text(view.phase), Text(why, style="dim"))
    bar = Table.grid(padding=(0, 1))
    done = ProgressBar(total=story.promise.steps, completed=story.step + 1, width=BAR_WIDTH)
    bar.add_row(done, summary(story))
    workers = tables.worker_table(view.workers) if view.workers else Text("no workers", style="dim")
    return Group(head, bar, Text(), workers, Text(), event_table(story))


def summary(story: Story) -> str:
    view = story.view
    if view is None:
        return SUBMITTING
    if story.step < 0:
        return f"{view.phase}: {output.first_line(view.why)}"
    rate = view.samples_per_s
    speed = f", {rate / story.promise.global_batch:.1f} steps/s, {rate:.0f} samples/s" if rate else ""
    return (
        f"step {story.step + 1} of {story.promise.steps}, loss {output.number(view.loss)}, "
        f"world of {view.world_size}, generation {view.generation}{speed}"
    )


def event_table(story: Story) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=len("HH:MM:SS"))
    for _ in range(2):
        table.add_column(no_wrap=True, overflow="ellipsis")
    for event in story.events[-EVENTS_SHOWN:]:
        clock = time.strftime("%H:%M:%S", time.localtime(event.at))
        style = "bold red" if event.kind.startswith("demo_") else ""
        why = Text(output.first_line(event.why), style="dim")
        table.add_row(Text(clock, style="dim"), Text(event.text, style=style), why)
    return table

"""Tables, and the console that prints them."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from messages.api import JobView, WorkerView
from runtime.plain_text import plain
from tradewind.terminal import output

WIDE = 1000
UNREAD = "unread"
"""Shown as the phase of a job whose record the master cannot read."""
PHASE_STYLES = {
    "running": "green",
    "succeeded": "bold green",
    "failed": "bold red",
    "stopped": "yellow",
    "waiting": "yellow",
    "paused": "bold yellow",
    "forming": "cyan",
    "reshaping": "magenta",
    UNREAD: "bold red",
}


def console(*, stderr: bool = False) -> Console:
    """The console. If the output is not a terminal, lines are neither folded nor cut, so that they can be searched."""
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=WIDE)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table. A column whose name begins with `>` is aligned to the right; only WHY is folded."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        align: JustifyMethod = "right" if column.startswith(">") else "left"
        made.add_column(column.lstrip(">"), justify=align, no_wrap=column != "WHY")
    for row in rows:
        made.add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in row))
    return made


def worker_table(workers: Sequence[WorkerView]) -> Table:
    return table(
        ("WORKER", "RANKS", ">GEN", "PHASE", "PRESENCE", ">STEP", ">LOSS", ">SAMPLES/S", "CLUSTER", ">HEARD", ">PID"),
        (
            (
                worker.worker,
                ranks_text(worker.ranks),
                output.number(worker.generation or None),
                worker.phase,
                worker.presence,
                output.number(worker.step),
                loss_text(worker),
                output.number(worker.samples_per_s),
                worker.cluster,
                f"{output.duration(worker.heard_s)} ago",
                output.number(worker.pid or None),
            )
            for worker in sorted(workers, key=lambda worker: (worker.ranks or (1 << 30,), worker.worker))
        ),
    )


def phase_text(phase: str) -> Text:
    return Text(plain(phase), style=PHASE_STYLES.get(phase, ""))


def ranks_text(ranks: Sequence[int]) -> str:
    if not ranks:
        return output.NOTHING
    return str(ranks[0]) if len(ranks) == 1 else f"{min(ranks)}…{max(ranks)}"


def loss_text(view: JobView | WorkerView) -> str:
    """The newest loss, also if it is not finite."""
    return "nan" if view.loss_nonfinite else output.number(view.loss)

"""What people see of jobs, workers, lines and events."""

import os
import sys
import time
from collections.abc import Iterable, Sequence

import click
from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from messages.api import EventLine, JobList, JobView, LogLine, WorkerView
from runtime.errors import UserError
from runtime.plain_text import plain, plain_lines, script_line
from tradewind.cli.measured import step_text

WIDE = 1000
CONTINUED = " " * 10
"""Before each further line of a text, so that it is not taken for a line of ours."""
QUIET_KINDS = ("job_submitted", "worker_joined", "world_decided", "job_succeeded")
UNREAD = "unread"
"""Instead of a phase, where there is a record that the master could not make sense of."""
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


VERBS = {"succeeded": "has", "failed": "has", "stopped": "was"}
"""Before a phase, where it is not `is`."""


def console(*, stderr: bool = False) -> Console:
    """Where the output is no terminal, lines are neither folded nor cut: somebody may search them."""
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=WIDE)


def show_line(line: LogLine) -> None:
    show(script_line(line.rank, line.line), err=line.stderr)


def show(text: str, *, err: bool = False) -> None:
    """Where a reader may go away, as with `| head`."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        # Else the interpreter would complain once more at its end, when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno() if err else sys.stdout.fileno())
        raise UserError("The output was closed.") from None


def say(sentence: str) -> None:
    """A line of Tradewind's own, apart from what the script prints."""
    click.secho(f"tradewind: {plain(sentence)}", err=True, dim=True)


def event_line(event: EventLine) -> str:
    """A reason of several lines stands below its event, each line indented: only an event begins with its time."""
    head = f"{time.strftime('%H:%M:%S', time.localtime(event.at))}  {plain(event.text)}"
    if not event.why:
        return head
    first, *rest = plain_lines(event.why.rstrip("\n"))
    return "\n".join([f"{head}:", *(f"{CONTINUED}{line}" for line in (first, *rest))]) if rest else f"{head} ({first})"


def tell_event(event: EventLine) -> None:
    """Beside a script's output: short, and not all. The last lines of a script that failed come with the job's end."""
    if event.kind in QUIET_KINDS:
        return
    reason = {"job_failed": event.why, "trainer_failed": ""}.get(event.kind, first_line(event.why))
    first, *rest = plain_lines(reason.rstrip("\n"))
    say(event.text + (f": {first}" if first else ""))
    for line in rest:
        say(f"  {line}")


def next_command(command: str) -> str:
    return f"Next: {command}"


def job_table(listed: JobList, now: float) -> Table:
    numbers = (">WORLD", ">STEP", ">LOSS", ">SAMPLES/S", ">GENERATION", ">LOST", ">FAILED", ">AGE")
    newest_first = sorted(listed.jobs, key=lambda job: -job.submitted_at)
    return table(
        ("NAME", "PHASE", *numbers, "WHY"),
        [
            *(_job_row(job, now) for job in newest_first),
            *(_unread_row(name, len(numbers)) for name in listed.unread),
        ],
    )


def _job_row(job: JobView, now: float) -> list[str | Text]:
    return [
        job.name,
        phase_text(shown_phase(job)),
        f"{job.world_size}",
        number(job.step),
        loss_text(job),
        number(job.samples_per_s),
        f"{job.generation}",
        f"{job.losses}",
        f"{job.failures}",
        duration(now - job.submitted_at),
        first_line(job.why),
    ]


def _unread_row(name: str, unknown: int) -> list[str | Text]:
    why = f"this master has not read its record; try: tradewind status {name}"
    return [name, phase_text(UNREAD), *("–",) * unknown, why]


def job_detail(job: JobView, now: float) -> RenderableType:
    head = Text.assemble(
        (plain(job.name), "bold"),
        f" {VERBS.get(job.phase, 'is')} ",
        phase_text(shown_phase(job)),
        f": {continued(job.why.strip())}\n" if job.why else "\n",
        f"generation {job.generation}, world of {job.world_size}, {count(job.wanted, 'worker')} wanted, "
        f"{job.losses} lost, {count(job.failures, 'failure')}, submitted {duration(now - job.submitted_at)} ago",
    )
    if job.step is not None:
        head.append(f"\nstep {job.step}, loss {loss_text(job)}, {number(job.samples_per_s)} samples/s")
    if job.nonfinite or job.skipped:
        what = f"{count(job.nonfinite, 'step')} with a loss or gradient that was not finite, {job.skipped} skipped"
        head.append(f"\n{what}", "bold red" if job.loss_nonfinite else "yellow")
    if job.measured is not None:
        head.append(f"\na step: {step_text(job.measured)}")
    for rank in sorted((rank for worker in job.workers for rank in worker.paused), key=lambda rank: rank.rank):
        head.append(f"\nrank {rank.rank}: {first_line(rank.reason)} for {duration(now - rank.since)}")
    if job.checkpoint is not None:
        age, step, folder = duration(now - job.checkpoint.at), job.checkpoint.step, first_line(job.checkpoint.folder)
        what = f": step {step} in {folder}" if step is not None else " of its script"
        head.append(f"\nnewest checkpoint{what}, {age} ago")
    if job.certificate is not None:
        head.append(f"\ncertificate: {plain(job.certificate.says)}", "green" if job.certificate.holds else "bold red")
    if job.warning:
        head.append(f"\nwarning: {plain(job.warning)}", "yellow")
    return Group(head, worker_table(job.workers)) if job.workers else head


def worker_table(workers: Sequence[WorkerView]) -> Table:
    return table(
        ("WORKER", "RANKS", ">GEN", "PHASE", "PRESENCE", ">STEP", ">LOSS", ">SAMPLES/S", "CLUSTER", ">HEARD", ">PID"),
        (
            (
                worker.worker,
                ranks_text(worker.ranks),
                number(worker.generation or None),
                worker.phase,
                worker.presence,
                number(worker.step),
                loss_text(worker),
                number(worker.samples_per_s),
                worker.cluster,
                f"{duration(worker.heard_s)} ago",
                number(worker.pid or None),
            )
            for worker in sorted(workers, key=lambda worker: (worker.ranks or (1 << 30,), worker.worker))
        ),
    )


def shown_phase(job: JobView) -> str:
    """Of all that a job may wait for, money is the one that a person has to give."""
    return "paused" if job.paused and job.phase == "waiting" else job.phase


def phase_text(phase: str) -> Text:
    return Text(plain(phase), style=PHASE_STYLES.get(phase, ""))


def ranks_text(ranks: Sequence[int]) -> str:
    if not ranks:
        return "–"
    return str(ranks[0]) if len(ranks) == 1 else f"{min(ranks)}…{max(ranks)}"


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def loss_text(view: JobView | WorkerView) -> str:
    """Never an older one that was finite."""
    return "nan" if view.loss_nonfinite else number(view.loss)


def duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{whole // 60} min"
    return f"{whole // 3600} h" if whole < 48 * 3600 else f"{whole // 86400} d"


def first_line(text: str) -> str:
    return plain_lines(text.strip())[0]


def continued(text: str) -> str:
    """All lines, those after the first indented."""
    return f"\n{CONTINUED}".join(plain_lines(text))


def is_terminal() -> bool:
    return sys.stdout.isatty()


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A column whose name begins with `>` is aligned to the right; only WHY is folded."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        align: JustifyMethod = "right" if column.startswith(">") else "left"
        made.add_column(column.lstrip(">"), justify=align, no_wrap=column != "WHY")
    for row in rows:
        made.add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in row))
    return made

"""Lines, numbers and durations as the commands print them. Text from outside is made safe to show."""

import os
import sys
import time

import click
import msgspec

from controlplane.catalog import money
from messages.api import EventLine, LogLine
from messages.events import EventKind
from messages.measured import MeasuredProfile
from runtime.errors import UserError
from runtime.plain_text import plain, plain_lines, script_line

CLOSED = "The output was closed."
NOTHING = "–"
"""Shown for a missing value."""
CONTINUED = " " * 10
"""Indents all lines of a text but the first, so that none looks like a line of Tradewind."""
QUIET_KINDS = (EventKind.JOB_SUBMITTED, EventKind.WORKER_JOINED, EventKind.WORLD_DECIDED, EventKind.JOB_SUCCEEDED)
"""Kinds of events that are not shown beside a script's output."""
BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def show_line(line: LogLine, *, err: bool = False) -> None:
    """Prints a rank's line on the stream that the rank used, or on standard error."""
    show(script_line(line.rank, line.line), err=err or line.stderr)


def show(text: str, *, err: bool = False) -> None:
    """Prints a line. Raises `UserError` if the reader has closed the output, as `| head` does."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        # Otherwise the interpreter reports the error again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno() if err else sys.stdout.fileno())
        raise UserError(CLOSED) from None


def say(message: str) -> None:
    """Prints a line of Tradewind on standard error, apart from the script's output."""
    click.secho(f"tradewind: {plain(message)}", err=True, dim=True)


def event_line(event: EventLine) -> str:
    """The event with its time and reason. A reason of several lines follows below, indented."""
    head = f"{time.strftime('%H:%M:%S', time.localtime(event.at))}  {plain(event.text)}"
    if not event.why:
        return head
    first, *rest = plain_lines(event.why.rstrip("\n"))
    return "\n".join([f"{head}:", *(f"{CONTINUED}{line}" for line in (first, *rest))]) if rest else f"{head} ({first})"


def tell_event(event: EventLine) -> None:
    """Prints an important event beside a script's output. Only `job_failed` shows all lines of its reason."""
    if event.kind in QUIET_KINDS:
        return
    match event.kind:
        case EventKind.JOB_FAILED:
            reason = event.why
        case EventKind.TRAINER_FAILED:
            reason = ""
        case _:
            reason = first_line(event.why)
    first, *rest = plain_lines(reason.rstrip("\n"))
    say(event.text + (f": {first}" if first else ""))
    for line in rest:
        say(f"  {line}")


def echo_json(value: object) -> None:
    show(msgspec.json.encode(value).decode())


def hint(command: str) -> None:
    """Names a useful next command on standard error."""
    click.echo(f"Next: {command}", err=True)


def usd_text(micro_usd: int, decimals: int = 4) -> str:
    """`1.2500`"""
    return money.usd_text(micro_usd, decimals)


def usd(micro_usd: int) -> str:
    """`1.2500 USD`"""
    return f"{usd_text(micro_usd)} USD"


def labelled(name: str, text: str) -> str:
    """An indented line of a list of facts."""
    return f"  {name:<12} {text}"


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return str(value) if isinstance(value, int) else f"{value:.4g}"


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
    """All lines of the text; those after the first are indented."""
    return f"\n{CONTINUED}".join(plain_lines(text))


def is_terminal() -> bool:
    return sys.stdout.isatty()


def step_text(measured: MeasuredProfile) -> str:
    """`420 ms, 33% of it waiting for others; 12 ms a sample on L4; 1.4 GB of gradients`"""
    parts = []
    if measured.step_s > 0:
        parts.append(f"{_seconds(measured.step_s)}, {measured.waiting:.0%} of it waiting for others")
    for accelerator, each in measured.compute.items():
        parts.append(f"{_seconds(each.seconds_per_sample)} a sample{f' on {accelerator}' if accelerator else ''}")
    parts.append(f"{_bytes(measured.gradient_bytes)} of gradients")
    return "; ".join(parts)


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _bytes(count: int) -> str:
    size, units = float(count), list(BYTE_UNITS)
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.3g} {units[0]}"

"""Steps that training scripts traced: lines of `<unix time> <step> <world>`, in a file for each process."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct


class TracedStep(Struct, frozen=True):
    at_unix_s: float
    step: int
    world: int


def read(prefix: Path) -> list[TracedStep]:
    files = sorted(prefix.parent.glob(f"{prefix.name}.*"))
    return sorted((step for file in files for step in parse(file.read_text(encoding="ascii"))), key=_time)


def parse(text: str) -> list[TracedStep]:
    """Parses complete lines; ignores an unfinished last line."""
    complete = text[: text.rfind("\n") + 1]
    return [_parse_line(line) for line in complete.splitlines()]


def _parse_line(line: str) -> TracedStep:
    at_unix_s, step, world = line.split()
    return TracedStep(float(at_unix_s), int(step), int(world))


def first_of_world(steps: Iterable[TracedStep], world: int, after_unix_s: float) -> TracedStep | None:
    later = (step for step in steps if step.world == world and step.at_unix_s > after_unix_s)
    return min(later, key=_time, default=None)


def last_step(steps: Iterable[TracedStep], world: int) -> int | None:
    """The last step that a world of this size completed."""
    return max((step.step for step in steps if step.world == world), default=None)


def _time(step: TracedStep) -> float:
    return step.at_unix_s

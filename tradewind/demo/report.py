"""The report of the demonstration: its figures and the result of each check, computed from the recorded facts.

Pure: the story records the facts (progress of each rank, announced worlds, the job's last phase, kills), and this
module judges them. A claim that the facts do not show is a failed check.
"""

from collections.abc import Iterator

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from messages.ids import Generation, Rank, WorkerId
from tradewind.demo.changes import Change, Kind, changes
from tradewind.demo.checks import CLAIMS
from tradewind.demo.cloud.checks import CLOUD_CLAIMS
from tradewind.demo.cloud.report import CloudReport, cloud_lines, cloud_report
from tradewind.demo.facts import Facts, Formed, Trained, by_generation, losses
from tradewind.demo.timeline import usual_step_s
from tradewind.terminal import output, tables


class World(Struct, frozen=True):
    """What a generation trained."""

    generation: Generation
    world_size: int
    why: str
    first_step: int | None
    """None if the world was replaced before it completed a step."""
    last_step: int | None
    seconds: float
    workers: tuple[WorkerId, ...]


class Killed(Struct, frozen=True):
    worker: WorkerId
    rank: Rank
    generation: Generation
    after_step: int


class Joined(Struct, frozen=True):
    """A worker that was in no earlier world."""

    worker: WorkerId
    generation: Generation
    rank: Rank


class Report(Struct, frozen=True):
    ok: bool
    failed_checks: tuple[str, ...]
    checks: tuple[str, ...]
    """The claims that hold."""
    steps: int
    samples: int
    generations: tuple[World, ...]
    kills: tuple[Killed, ...]
    joins: tuple[Joined, ...]
    changes: tuple[Change, ...]
    step_s: float
    """Seconds of a step in an unchanged world."""
    repeated_steps: int
    certificate: str
    """The certificate that the run printed at its end."""
    loss_first: float | None
    loss_last: float | None
    total_s: float
    cloud: CloudReport | None = None
    """None without a cloud."""


def report_on(facts: Facts) -> Report:
    trained = by_generation(facts.progress)
    cloud = facts.cloud
    outcomes = {claim: tuple(check(facts, trained)) for claim, check in CLAIMS.items()}
    if cloud is not None:
        outcomes |= {claim: tuple(check(cloud, trained)) for claim, check in CLOUD_CLAIMS.items()}
    changed = tuple(changes(facts, trained))
    steps = len(frozenset[int]().union(*(world.completed for world in trained)))
    first, last = losses(facts.progress)
    failed = tuple(problem for problems in outcomes.values() for problem in problems)
    return Report(
        ok=not failed,
        failed_checks=failed,
        checks=tuple(claim for claim, problems in outcomes.items() if not problems),
        steps=steps,
        samples=steps * facts.promise.global_batch,
        generations=tuple(_worlds(facts.formed, trained)),
        kills=tuple(Killed(kill.worker, kill.rank, kill.generation, kill.step) for kill in facts.kills),
        joins=tuple(_joins(trained)),
        changes=changed,
        step_s=round(usual_step_s(facts.traced), 4),
        repeated_steps=sum(change.repeated_steps for change in changed),
        certificate=facts.certificate,
        loss_first=first,
        loss_last=last,
        total_s=facts.total_s,
        cloud=cloud_report(cloud, trained) if cloud is not None else None,
    )


def _worlds(formed: tuple[Formed, ...], trained: list[Trained]) -> Iterator[World]:
    announced = {world.generation: world for world in formed}
    by_generation = {world.generation: world for world in trained}
    for generation in sorted(announced.keys() | by_generation.keys()):
        said, did = announced.get(generation), by_generation.get(generation)
        yield World(
            generation=generation,
            world_size=said.size if said else len(did.holders) if did else 0,
            why=said.why if said else "",
            first_step=min(did.completed) if did else None,
            last_step=max(did.completed) if did else None,
            seconds=round(did.last_at - did.first_at, 3) if did else 0.0,
            workers=tuple(sorted(did.members)) if did else (),
        )


def _joins(trained: list[Trained]) -> Iterator[Joined]:
    known = trained[0].members if trained else frozenset()
    for world in trained[1:]:
        for rank in sorted(world.holders):
            for worker in sorted(world.holders[rank] - known):
                yield Joined(worker, world.generation, rank)
        known |= world.members


def report_text(report: Report) -> RenderableType:
    """The report for people."""
    return Group(
        Text(),
        tables.table(
            (">AFTER STEP", "WHAT HAPPENED", "WORLD", ">PAUSE", ">STEPS REPEATED"),
            [_row(change) for change in report.changes],
        ),
        Text(),
        *(Text(line) for line in _lines(report)),
        Text(),
        *(Text.assemble(("✓ ", "green"), claim) for claim in report.checks),
        *(Text.assemble(("✗ ", "bold red"), problem) for problem in report.failed_checks),
    )


def _row(change: Change) -> tuple[str, ...]:
    world = f"{change.world_before} → {change.world_after}"
    return f"{change.after_step}", change.what, world, f"{_ms(change.pause_s)}", f"{change.repeated_steps}"


def _lines(report: Report) -> list[str]:
    return [
        f"{report.steps} steps with {report.samples} samples in {report.total_s:.0f} s, "
        f"loss {output.number(report.loss_first)} → {output.number(report.loss_last)}",
        f"pause: how much longer the slowest step at a change was than a usual step ({_ms(report.step_s)}); "
        + _restarts(report),
        f"certificate: {report.certificate or 'none'}",
        *(cloud_lines(report.cloud) if report.cloud is not None else ()),
    ]


def _restarts(report: Report) -> str:
    restarts = sum(change.kind is Kind.RESTART for change in report.changes)
    return f"{output.count(restarts, 'restart')}" if restarts else "no trainer restarted"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"

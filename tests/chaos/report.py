"""The report of a run for people and programs."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from tests.chaos.checks import Check
from tests.chaos.evidence import Evidence, JobEvidence


class JobReport(Struct, frozen=True):
    name: str
    phase: str
    generation: int
    failures: int
    losses: int
    trainers: int
    """Processes that trained."""
    longest_gap_s: float
    """Longest time without a step of any rank."""
    orders: int
    """How often a rank slept in its loop body."""
    certificate: str


class Report(Struct, frozen=True):
    seed: int
    minutes: float
    holds: bool
    faults: dict[str, int]
    missed: dict[str, int]
    """Faults that found nothing to hit."""
    jobs: tuple[JobReport, ...]
    checks: dict[str, str]
    """What was wrong; empty for a check that holds."""
    left: tuple[str, ...]


def report(seed: int, minutes: float, evidence: Evidence, checks: list[Check]) -> Report:
    return Report(
        seed=seed,
        minutes=minutes,
        holds=all(check.holds for check in checks),
        faults=_counted(one.fault.kind for one in evidence.injected if one.hit),
        missed=_counted(one.fault.kind for one in evidence.injected if not one.hit),
        jobs=tuple(_job(job) for job in evidence.jobs.values()),
        checks={check.name: check.detail for check in checks},
        left=(*evidence.strangers, *evidence.left),
    )


def lines(reported: Report) -> Iterator[str]:
    yield f"{sum(reported.faults.values())} faults: " + ", ".join(
        f"{n} × {kind}" for kind, n in reported.faults.items()
    )
    if reported.missed:
        yield "nothing to hit: " + ", ".join(f"{n} × {kind}" for kind, n in reported.missed.items())
    for job in reported.jobs:
        numbers = f"generation {job.generation}, {job.failures} failures, {job.losses} losses, {job.trainers} trainers"
        numbers = f"{numbers}, at most {job.longest_gap_s:.1f} s without a step"
        yield f"{job.name:8} {job.phase}: {numbers}; {job.certificate}"
    for name, detail in reported.checks.items():
        yield f"{'FAIL' if detail else 'pass'}  {name}{f': {detail}' if detail else ''}"
    verdict = "all checks hold" if reported.holds else "NOT all checks hold"
    yield f"seed {reported.seed}, {reported.minutes:g} minutes: {verdict}"


def _job(job: JobEvidence) -> JobReport:
    view = job.view
    return JobReport(
        name=job.name,
        phase=view.phase if view is not None else "never seen",
        generation=view.generation if view is not None else 0,
        failures=view.failures if view is not None else 0,
        losses=view.losses if view is not None else 0,
        trainers=len(job.traces),
        longest_gap_s=round(_longest_gap_s(job), 2),
        orders=len(job.orders),
        certificate=view.certificate.message if view is not None and view.certificate is not None else "no certificate",
    )


def _longest_gap_s(job: JobEvidence) -> float:
    at_s = sorted(line.at_s for trace in job.traces for line in trace if line.what == "step")
    return max((after - before for before, after in pairwise(at_s)), default=0.0)


def _counted(kinds: Iterator[str]) -> dict[str, int]:
    return {str(kind): count for kind, count in sorted(Counter(kinds).items())}

"""The checks of a run: each judges the evidence and reports what is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.evidence import Evidence, JobEvidence, Order, Traced
from tests.chaos.faults import Kind, Target
from tests.chaos.forge import FORGED_LINE
from tests.chaos.injector import Injected
from tests.chaos.stage import MASTERS

SLOW_CHECK = "slow ranks changed no world"
STALL_CHECK = "stalled ranks were removed"
STALLED_IN = "sleep_for_ever"
"""Function of the script in which a stalled rank sleeps; its stack shows it."""
AFTER_KILL_S = 30.0
"""Seconds after a kill of a machine of the job in which a world may still change."""
MARGIN_S = 0.5


@dataclass(frozen=True)
class Check:
    name: str
    holds: bool
    detail: str


def judge(evidence: Evidence) -> list[Check]:
    return [_checked(name, check, evidence) for name, check in CHECKS.items()]


def _checked(name: str, check: Callable[[Evidence], Iterator[str]], evidence: Evidence) -> Check:
    problems = list(check(evidence))
    return Check(name, not problems, "; ".join(problems))


def _jobs_succeeded(evidence: Evidence) -> Iterator[str]:
    for job in evidence.jobs.values():
        if job.view is None:
            yield f"{job.name} was never seen"
        elif job.view.phase != "succeeded":
            yield f"{job.name} is {job.view.phase}: {job.view.why}"


def _certificates_hold(evidence: Evidence) -> Iterator[str]:
    for job in evidence.jobs.values():
        proof = job.view.certificate if job.view is not None else None
        if proof is None:
            yield f"{job.name} has none"
        elif not proof.holds or (proof.steps, proof.samples) != (job.steps, job.samples):
            yield f"{job.name}: {proof.message}; expected {job.steps} steps, {job.samples} samples"


def _final_states_are_identical(evidence: Evidence) -> Iterator[str]:
    for job in evidence.jobs.values():
        states = {final["weights"] for final in job.finals}
        if len(states) != 1:
            yield f"{job.name}: {len(job.finals)} ranks wrote {len(states)} different states"


def _generations_only_increased(evidence: Evidence) -> Iterator[str]:
    for job in evidence.jobs.values():
        for trace in job.traces:
            generations = [line.generation for line in trace if line.what == "step"]
            if generations != sorted(generations):
                yield f"{job.name}: a trainer stepped in generations {_falls(generations)}"
        newest = max((line.generation for trace in job.traces for line in trace), default=0)
        if job.view is not None and job.view.generation < newest:
            yield f"{job.name} ended with generation {job.view.generation}, after {newest}"


def _losses_are_no_failures(evidence: Evidence) -> Iterator[str]:
    for name in (Target.STOPS, Target.SLOW):
        view = evidence.jobs[name].view
        if view is not None and view.failures:
            yield f"{name}: {view.failures} failures were counted"


def _no_worker_lost_without_a_kill(evidence: Evidence) -> Iterator[str]:
    """Judges the jobs whose workers are hit by kills only; slowness and faults elsewhere must cost them nothing."""
    for name in (Target.SLOW, Target.STALLED):
        view, kills = evidence.jobs[name].view, len(_kills_of(evidence, name))
        if view is not None and view.losses > kills:
            yield f"{name}: {view.losses} workers were lost, {kills} were killed"


def _slow_ranks_changed_no_world(evidence: Evidence) -> Iterator[str]:
    job = evidence.jobs[Target.SLOW]
    slept = [order for order in job.orders if order.end_s is not None and not _is_disturbed(evidence, order)]
    if not slept:
        yield "no rank was slow undisturbed: nothing to judge"
    for order in slept:
        fell_out = [line for trace in job.traces for line in trace if _in_order(line, order)]
        if fell_out:
            lasted_s = (order.end_s or order.begin_s) - order.begin_s
            yield f"{len(fell_out)} ranks left step {order.step} while rank {order.rank} slept for {lasted_s:.1f} s"


def _stalled_ranks_were_removed(evidence: Evidence) -> Iterator[str]:
    job = evidence.jobs[Target.STALLED]
    if not job.orders:
        yield "no rank was stalled: nothing to judge"
    for order in job.orders:
        if not any(line.step > order.step and line.generation > order.generation for line in _steps(job)):
            yield f"no step followed step {order.step}, in which rank {order.rank} stalled"


def _stalls_were_counted_once(evidence: Evidence) -> Iterator[str]:
    job = evidence.jobs[Target.STALLED]
    failures = job.view.failures if job.view is not None else 0
    if failures != len(job.orders):
        yield f"{len(job.orders)} stalls, {failures} failures counted"
    shown = sum(STALLED_IN in event.text + event.why for event in job.events if not event.ends_job)
    if shown != len(job.orders):
        yield f"{len(job.orders)} stalls, {shown} events with the stack of one"


def _no_master_exited(evidence: Evidence) -> Iterator[str]:
    yield from (f"{end.part} with {end.code}" for end in evidence.exits if end.part in MASTERS)


def _no_other_part_exited(evidence: Evidence) -> Iterator[str]:
    yield from (f"{end.part} with {end.code}" for end in evidence.exits if end.part not in MASTERS)


def _no_process_of_a_job_is_left(evidence: Evidence) -> Iterator[str]:
    yield from evidence.strangers


def _no_process_is_left(evidence: Evidence) -> Iterator[str]:
    yield from evidence.left


def _no_traceback(evidence: Evidence) -> Iterator[str]:
    yield from evidence.tracebacks


def _no_forged_line(evidence: Evidence) -> Iterator[str]:
    yield from (line for line in evidence.shown if line.startswith(FORGED_LINE))


def _steps(job: JobEvidence) -> Iterator[Traced]:
    return (line for trace in job.traces for line in trace if line.what == "step")


def _in_order(line: Traced, order: Order) -> bool:
    return line.what == "fell_out" and order.begin_s <= line.at_s <= (order.end_s or order.begin_s) + MARGIN_S


def _is_disturbed(evidence: Evidence, order: Order) -> bool:
    """True if a machine of the job was killed shortly before, or meanwhile."""
    kills = _kills_of(evidence, Target.SLOW)
    ended_s = order.end_s or order.begin_s
    return any(one.at_s < ended_s + MARGIN_S and order.begin_s - one.at_s < AFTER_KILL_S for one in kills)


def _kills_of(evidence: Evidence, name: Target) -> list[Injected]:
    kills = (one for one in evidence.injected if one.fault.kind is Kind.KILL_MACHINE and one.fault.target is name)
    return [one for one in kills if one.hit]


def _falls(generations: list[int]) -> str:
    pairs = pairwise(generations)
    return ", ".join(f"{before} then {after}" for before, after in pairs if after < before)


CHECKS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "all four jobs succeeded": _jobs_succeeded,
    "every certificate holds: nothing lost, nothing repeated": _certificates_hold,
    "the final states of all ranks are identical": _final_states_are_identical,
    "generations only increased": _generations_only_increased,
    "lost and stopped machines counted as no failure": _losses_are_no_failures,
    "no worker was lost without a kill": _no_worker_lost_without_a_kill,
    SLOW_CHECK: _slow_ranks_changed_no_world,
    STALL_CHECK: _stalled_ranks_were_removed,
    "each stall counted once, with a stack in its event": _stalls_were_counted_once,
    "no master exited by itself": _no_master_exited,
    "no controller and no bus exited by itself": _no_other_part_exited,
    "no process of a job is left when all jobs have ended": _no_process_of_a_job_is_left,
    "no process of any kind is left": _no_process_is_left,
    "no traceback in any log": _no_traceback,
    "forged events print no line of their own": _no_forged_line,
}

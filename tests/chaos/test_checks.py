"""Each check of a chaos run can fail, and only on what it is about."""

import re
from dataclasses import replace

import pytest

from messages.api import EventLine, JobView
from messages.ids import Generation, JobName
from messages.workers import SampleCertificate
from tests.chaos.checks import CHECKS, SLOW_CHECK, STALL_CHECK, judge
from tests.chaos.evidence import Evidence, JobEvidence, Order, Traced
from tests.chaos.faults import JOBS, Fault, Kind, Target
from tests.chaos.forge import FORGED_LINE
from tests.chaos.injector import Injected
from tests.chaos.stage import Exit

STACK = EventLine(1.0, "stalled", "trainer_failed", "rank 1 stalled", 'File "train.py", in sleep_for_ever')


def a_view(
    name: str, *, phase: str = "succeeded", failures: int = 0, losses: int = 0, samples: int = 240, generation: int = 2
) -> JobView:
    proof = SampleCertificate(steps=10, samples=samples, lost=240 - samples)
    return JobView(JobName(name), phase, "", Generation(generation), 2, 2, failures, 0.0, losses, certificate=proof)


def a_job(name: Target) -> JobEvidence:
    """Its second step is in a second world."""
    steps = (Traced(1.0, "step", 1, 4), Traced(3.0, "fell_out", 1, 5), Traced(20.0, "step", 2, 5))
    return JobEvidence(name, 10, 240, a_view(name), finals=({"weights": "ab"}, {"weights": "ab"}), traces=(steps,))


def good() -> Evidence:
    jobs: dict[str, JobEvidence] = {name: a_job(name) for name in JOBS}
    jobs[Target.SLOW] = replace(jobs[Target.SLOW], orders=(Order(0, 5, 2, 12.0, 16.0),))
    stalled = replace(jobs[Target.STALLED], orders=(Order(1, 4, 1, 2.0, None),), events=(STACK,))
    jobs[Target.STALLED] = replace(stalled, view=a_view(Target.STALLED, failures=1))
    return Evidence(jobs)


def with_job(job: JobEvidence) -> Evidence:
    evidence = good()
    return replace(evidence, jobs={**evidence.jobs, job.name: job})


GOOD = good()
KILLS, SLOW, STALLED = (GOOD.jobs[name] for name in (Target.KILLS, Target.SLOW, Target.STALLED))
BACKWARDS = ((Traced(1.0, "step", 2, 4), Traced(2.0, "step", 1, 5)),)
BAD = {
    "all four jobs succeeded": with_job(replace(KILLS, view=a_view("kills", phase="failed"))),
    "every certificate holds: nothing lost, nothing repeated": with_job(
        replace(KILLS, view=a_view("kills", samples=239))
    ),
    "the final states of all ranks are identical": with_job(
        replace(KILLS, finals=({"weights": "ab"}, {"weights": "cd"}))
    ),
    "generations only increased": with_job(replace(KILLS, traces=BACKWARDS)),
    "lost and stopped machines counted as no failure": with_job(replace(SLOW, view=a_view("slow", failures=1))),
    "no worker was lost without a kill": with_job(replace(SLOW, view=a_view("slow", losses=1))),
    SLOW_CHECK: with_job(replace(SLOW, orders=(Order(0, 5, 1, 2.0, 6.0),))),
    STALL_CHECK: with_job(replace(STALLED, orders=(Order(1, 9, 1, 2.0, None),))),
    "each stall counted once, with a stack in its event": with_job(replace(STALLED, events=())),
    "no master exited by itself": replace(GOOD, exits=(Exit("master-1", 2),)),
    "no controller and no bus exited by itself": replace(GOOD, exits=(Exit("east", 1),)),
    "no process of a job is left when all jobs have ended": replace(GOOD, strangers=("12 sleep 86400",)),
    "no process of any kind is left": replace(GOOD, left=("12 nats-server",)),
    "no traceback in any log": replace(GOOD, tracebacks=("east.log:3",)),
    "forged events print no line of their own": replace(GOOD, shown=("10:00 chaos forged", f"{FORGED_LINE}: …")),
}


def test_a_good_run_passes_every_check() -> None:
    assert [check.name for check in judge(GOOD) if not check.holds] == []


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_fails_on_what_it_is_about_and_no_other_does(name: str) -> None:
    assert [check.name for check in judge(BAD[name]) if not check.holds] == [name]


def test_a_stall_that_counted_twice_is_found() -> None:
    twice = with_job(replace(STALLED, view=a_view("stalled", failures=2)))
    assert [re.findall(r"\d+", check.detail) for check in judge(twice) if not check.holds] == [["1", "2"]]


def test_a_rank_that_was_slow_while_a_machine_was_killed_is_not_judged() -> None:
    kill = Injected(Fault(1.0, Kind.KILL_MACHINE, Target.SLOW, 0.0, 1), 1.0, "agent 12")
    undisturbed = Order(0, 5, 2, 40.0, 44.0)
    disturbed = with_job(replace(SLOW, orders=(Order(0, 5, 1, 2.0, 6.0), undisturbed)))
    assert all(check.holds for check in judge(replace(disturbed, injected=(kill,))))


def test_a_run_in_which_no_rank_was_slow_or_stalled_proves_nothing() -> None:
    nobody = replace(GOOD, jobs={name: replace(job, orders=()) for name, job in GOOD.jobs.items()})
    failed = {check.name for check in judge(nobody) if not check.holds}
    assert {SLOW_CHECK, STALL_CHECK} <= failed

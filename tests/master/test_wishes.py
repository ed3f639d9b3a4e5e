"""What a job asks of the market, as its budget and its deadline run down."""

from dataclasses import replace
from typing import Any

from msgspec import structs

from controlplane.job.state import Job, new_job
from controlplane.master.wishes import DEADLINE_EVERY_S, Wishes
from messages.criteria import Capacity, Deadline, Objective, StepProfile, StepTime
from messages.ids import Epoch
from messages.jobs import JobSpec, Launch, Workers

SUBMITTED = 1_800_000_000.0
HOUR_S = 3600.0


def a_job(capacity: Capacity | None) -> Job:
    profile = StepProfile(gradient_bytes=1, compute={"L4": StepTime(0.1)})
    spec = JobSpec(
        "demo",
        Launch(script="train.py"),
        Workers(max=4, min=2),
        capacity=capacity,
        profile=profile,
        hyperparameters={"global_batch": 8},
    )
    return new_job(spec, epoch=Epoch(1), at_s=0.0, submitted_at=SUBMITTED)


def _with(job: Job, **record: Any) -> Job:
    return replace(job, record=structs.replace(job.record, **record))


def test_a_job_without_criteria_is_not_planned() -> None:
    assert Wishes().demand(a_job(None), None, SUBMITTED) is None


def test_a_job_with_criteria_is_planned_by_them_and_by_its_profile() -> None:
    demand = Wishes().demand(a_job(Capacity(accelerators=("L4",))), None, SUBMITTED)
    assert demand is not None
    assert (demand.criteria.min_workers, demand.criteria.max_workers) == (2, 4)
    assert demand.criteria.accelerators == {"L4"}
    assert demand.profile.compute["L4"].seconds_per_sample == 0.1


def test_a_budget_that_is_short_forbids_machines_on_demand_and_one_that_was_raised_counts() -> None:
    wishes, job = Wishes(), a_job(Capacity(on_demand=0.5, max_usd_total=10.0))
    before = wishes.criteria(job, None, SUBMITTED)
    assert before is not None and before.on_demand == 0.5
    after = wishes.criteria(_with(job, spot_only="short", max_usd_total=20.0), None, SUBMITTED)
    assert after is not None
    assert (after.on_demand, after.max_micro_usd_total) == (0.0, 20_000_000)


def test_of_a_deadline_counts_what_is_left_of_time_and_steps() -> None:
    job = a_job(Capacity(objective=Objective.DEADLINE, deadline=Deadline(hours=2.0, steps=7200)))
    fresh, later = Wishes().criteria(job, None, SUBMITTED), Wishes().criteria(job, 3600, SUBMITTED + HOUR_S)
    late = Wishes().criteria(job, 1800, SUBMITTED + HOUR_S)
    assert fresh is not None and later is not None and late is not None
    assert (fresh.min_steps_per_s, later.min_steps_per_s, late.min_steps_per_s) == (1.0, 1.0, 1.5)


def test_a_deadline_is_looked_at_once_a_minute_since_each_look_means_a_plan() -> None:
    wishes = Wishes()
    job = a_job(Capacity(objective=Objective.DEADLINE, deadline=Deadline(hours=2.0, steps=7200)))
    first = wishes.criteria(job, None, SUBMITTED)
    assert wishes.criteria(job, 10, SUBMITTED + DEADLINE_EVERY_S / 2) is first
    assert wishes.criteria(job, 10, SUBMITTED + DEADLINE_EVERY_S) != first

"""Nodes that a planned job uses too little, and steps that need other than was thought."""

from typing import Any

from controlplane.allocator import events
from controlplane.allocator.effects import AllocatorEffect, MakePlan, RemoveNodes
from controlplane.allocator.state import AllocatorSettings
from messages.criteria import Objective
from tests.allocator.planned_stage import IOWA, WEST, PlannedStage, a_running_stage, prices_of, said
from tests.allocator.stage import US, a_full_stage, held_by, of
from tests.planning.builders import IOWA_A, OREGON, a_small_profile

BRIEF = AllocatorSettings(idle_timeout_s=60.0, relist_s=10_000.0)
FIRST, SECOND, THIRD, FOURTH = (f"{IOWA_A}-{number}" for number in range(1, 5))


def a_stage(min_workers: int = 2, min_utilisation: float | None = 0.5, **given: Any) -> PlannedStage:
    """Four nodes in one zone."""
    stage = a_running_stage(
        IOWA,
        settings=BRIEF,
        min_workers=min_workers,
        objective=Objective.THROUGHPUT,
        min_utilisation=min_utilisation,
        **given,
    )
    assert held_by(stage) == {IOWA_A: 4}
    return stage


def sees_use(stage: PlannedStage, use: dict[str, float], after_s: float = 0.0) -> list[AllocatorEffect]:
    stage.now_s += after_s
    everywhere = {name: 0.9 for nodes in stage.machines.values() for name in nodes}
    return stage.happens(events.UseSeen(stage.now_s, everywhere | use))


def test_a_node_that_is_used_too_little_is_left_and_then_goes_with_the_numbers_as_its_why() -> None:
    stage = a_stage()
    sees_use(stage, {THIRD: 0.12})
    assert sees_use(stage, {THIRD: 0.08}, after_s=59.0) == []
    found = sees_use(stage, {THIRD: 0.11}, after_s=1.0)
    why = f"the job computed on {THIRD} in 11% of the time, below 50% for 60 s"
    assert [(each.text, each.why) for each in said(found, "node_underused")] == [
        (f"node {THIRD} in {IOWA_A} is given up", why)
    ]
    assert stage.words(found) == []
    assert stage.allocator.leaving == {US: {THIRD}}
    assert stage.words(stage.settles()) == []
    assert stage.allocator.leaving == {US: {THIRD}}
    assert stage.allocator.why.startswith("3 of 3 nodes held; ")
    left = stage.releases(THIRD)
    [remove] = of(left, RemoveNodes)
    assert (remove.nodes, remove.why) == ((THIRD,), why)
    stage.ends(remove)
    stage.lists()
    assert stage.words(stage.settles()) == []
    assert held_by(stage) == {IOWA_A: 3}
    assert stage.allocator.leaving == {}


def test_a_break_and_a_silence_begin_the_time_anew() -> None:
    for use in ({THIRD: 0.5}, {}):
        stage = a_stage()
        sees_use(stage, {THIRD: 0.1})
        stage.now_s += 50.0
        stage.happens(events.UseSeen(stage.now_s, use))
        sees_use(stage, {THIRD: 0.1}, after_s=10.0)
        sees_use(stage, {THIRD: 0.1}, after_s=50.0)
        assert stage.allocator.leaving == {}
        sees_use(stage, {THIRD: 0.1}, after_s=10.0)
        assert stage.allocator.leaving == {US: {THIRD}}


def test_time_alone_gives_up_nothing_that_was_not_reported_again() -> None:
    stage = a_stage()
    sees_use(stage, {THIRD: 0.1})
    stage.ticks(100.0)
    assert stage.allocator.leaving == {}


def test_the_least_used_goes_first_and_the_others_are_looked_at_afresh() -> None:
    stage = a_stage()
    low = {SECOND: 0.3, THIRD: 0.1, FOURTH: 0.2}
    sees_use(stage, low)
    sees_use(stage, low, after_s=60.0)
    assert stage.allocator.leaving == {US: {THIRD}}
    sees_use(stage, low, after_s=1.0)
    sees_use(stage, low, after_s=100.0)
    assert stage.allocator.leaving == {US: {THIRD}}, "it has not gone yet"
    stage.ends(of(stage.releases(THIRD), RemoveNodes)[0])
    stage.lists()
    stage.settles()
    sees_use(stage, {SECOND: 0.9, FOURTH: 0.2}, after_s=1.0)
    assert stage.allocator.leaving == {US: {FOURTH}}


def test_no_more_go_than_the_job_can_run_without() -> None:
    stage = a_stage(min_workers=4)
    sees_use(stage, {THIRD: 0.1})
    sees_use(stage, {THIRD: 0.1}, after_s=100.0)
    assert stage.allocator.leaving == {}


def test_a_node_that_is_needed_after_a_loss_is_called_back() -> None:
    stage = a_stage(min_workers=3)
    sees_use(stage, {THIRD: 0.1})
    sees_use(stage, {THIRD: 0.1}, after_s=60.0)
    assert stage.allocator.leaving == {US: {THIRD}}
    stage.sees()
    stage.takes(FIRST)
    stage.sees()
    assert stage.allocator.leaving == {}
    assert held_by(stage) == {IOWA_A: 3}


def test_what_is_not_asked_for_is_not_looked_at() -> None:
    stage = a_stage(min_utilisation=None)
    sees_use(stage, {THIRD: 0.0})
    sees_use(stage, {THIRD: 0.0}, after_s=1000.0)
    assert stage.allocator.leaving == {}


def test_a_machine_that_came_under_the_name_of_a_lost_one_has_its_own_time() -> None:
    stage = a_stage()
    sees_use(stage, {THIRD: 0.1})
    stage.takes(THIRD)
    stage.now_s += 50.0
    stage.fills(IOWA)
    stage.sees()
    sees_use(stage, {THIRD: 0.1}, after_s=10.0)
    assert stage.allocator.leaving == {}


def test_the_very_node_goes_though_the_plan_would_rather_give_up_another() -> None:
    dear = prices_of((IOWA, WEST), us_west1_a=0.9)
    stage = a_running_stage(
        IOWA,
        WEST,
        options=[dear[0], dear[1]],
        settings=BRIEF,
        min_workers=2,
        max_workers=10,
        wanted=10,
        objective=Objective.THROUGHPUT,
        min_utilisation=0.5,
        profile=a_small_profile(gradient_bytes=0, global_batch=1280),
    )
    assert held_by(stage) == {IOWA_A: 8, OREGON: 2}
    sees_use(stage, {THIRD: 0.1})
    sees_use(stage, {THIRD: 0.1}, after_s=60.0)
    stage.sees()
    assert stage.words(stage.settles()) == []
    assert stage.allocator.leaving == {US: {THIRD}}
    stage.ends(of(stage.releases(THIRD), RemoveNodes)[0])
    stage.ticks(1.0)
    assert stage.allocator.leaving == {}, "before a listing has confirmed it"
    stage.lists()
    assert stage.words(stage.settles()) == []
    assert held_by(stage) == {IOWA_A: 7, OREGON: 2}


# What steps need


def test_a_measured_profile_is_planned_with_and_a_plan_of_the_old_one_is_not_followed() -> None:
    stage = a_running_stage(IOWA, WEST, min_workers=2, max_workers=2)
    measured = a_small_profile(gradient_bytes=5 * 10**8)
    assert of(stage.happens(events.ProfileMeasured(stage.now_s, measured)), MakePlan) == []
    assert stage.allocator.plans.facts is not None
    assert stage.allocator.plans.basis != stage.allocator.plans.facts
    [ask] = of(stage.ticks(0.5), MakePlan)
    assert ask.profile == measured


def test_a_job_that_is_not_planned_has_no_use_for_a_profile() -> None:
    stage = a_full_stage()
    assert stage.happens(events.ProfileMeasured(stage.now_s, a_small_profile())) == []
    assert stage.happens(events.UseSeen(stage.now_s, {"us-a-1": 0.0})) == []

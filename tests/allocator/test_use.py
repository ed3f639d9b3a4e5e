"""Nodes with low use of a planned job, and measured steps that differ from the assumed ones."""

import random
from typing import Any

import pytest
from msgspec import structs

from controlplane.allocator import events
from controlplane.allocator.availability import is_in_cooldown
from controlplane.allocator.effects import AllocatorEffect, CreatePool, MakePlan, RemoveNodes, ResizePool
from controlplane.allocator.explanations import nodes_text
from controlplane.allocator.settings import AllocatorSettings
from controlplane.planning.plan import Change
from controlplane.throughput.use import FRESH_S, NodeUse
from messages.criteria import Objective
from tests.allocator.planned_stage import IOWA, WEST, PlannedStage, a_running_stage, prices_of, said
from tests.allocator.stage import EU, US, a_full_stage, held_by, of
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
    return stage.happens(events.UseSeen(stage.now_s, of_us(everywhere | use)))


def of_us(use: dict[str, float]) -> tuple[NodeUse, ...]:
    return tuple(NodeUse(US, node, share) for node, share in use.items())


def test_a_node_that_is_used_too_little_is_left_and_then_goes_with_the_numbers_as_its_why() -> None:
    stage = a_stage()
    sees_use(stage, {THIRD: 0.12})
    assert sees_use(stage, {THIRD: 0.08}, after_s=59.0) == []
    found = sees_use(stage, {THIRD: 0.11}, after_s=1.0)
    [underused] = said(found, "node_underused")
    assert (underused.fields["node"], underused.fields["zone"]) == (THIRD, IOWA_A)
    assert [each in underused.why for each in (THIRD, "11%", "50%", "60 s")] == [True] * 4
    assert stage.words(found) == []
    assert stage.allocator.leaving == {US: {THIRD}}
    assert stage.words(stage.settles()) == []
    assert stage.allocator.leaving == {US: {THIRD}}
    assert stage.allocator.why.startswith(nodes_text(3, 3))
    left = stage.releases(THIRD)
    [remove] = of(left, RemoveNodes)
    assert (remove.nodes, remove.why) == ((THIRD,), underused.why)
    stage.ends(remove)
    stage.lists()
    assert stage.words(stage.settles()) == []
    assert held_by(stage) == {IOWA_A: 3}
    assert stage.allocator.leaving == {}


def test_a_break_begins_the_time_again_and_so_does_nothing_being_known_of_it() -> None:
    for use in ({THIRD: 0.5}, {FIRST: 0.9}):
        stage = a_stage()
        sees_use(stage, {THIRD: 0.1})
        stage.now_s += 50.0
        stage.happens(events.UseSeen(stage.now_s, of_us(use)))
        sees_use(stage, {THIRD: 0.1}, after_s=10.0)
        sees_use(stage, {THIRD: 0.1}, after_s=50.0)
        assert stage.allocator.leaving == {}
        sees_use(stage, {THIRD: 0.1}, after_s=10.0)
        assert stage.allocator.leaving == {US: {THIRD}}


def test_a_long_silence_of_all_begins_the_time_again() -> None:
    stage = a_stage()
    sees_use(stage, {THIRD: 0.1})
    sees_use(stage, {THIRD: 0.1}, after_s=FRESH_S + 1.0)
    assert stage.allocator.leaving == {}
    sees_use(stage, {THIRD: 0.1}, after_s=FRESH_S)
    assert stage.allocator.leaving == {US: {THIRD}}


def test_what_is_told_again_counts_from_when_it_was_heard() -> None:
    stage = a_stage()
    sees_use(stage, {THIRD: 0.1})
    for silent_s in (30.0, 50.0):
        stage.now_s += silent_s
        stage.happens(events.UseSeen(stage.now_s, (NodeUse(US, THIRD, 0.1, silent_s=silent_s),)))
    assert stage.allocator.leaving == {}


def test_a_node_of_the_same_name_in_another_cluster_is_another_one() -> None:
    stage = a_stage()
    for _ in range(3):
        stage.happens(events.UseSeen(stage.now_s, (NodeUse(EU, THIRD, 0.1), *of_us({THIRD: 0.9}))))
        stage.now_s += 50.0
    assert stage.allocator.leaving == {}


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
    for after_s in (1.0, 50.0, 50.0):
        sees_use(stage, low, after_s=after_s)
    assert stage.allocator.leaving == {US: {THIRD}}, "it has not gone yet"
    stage.ends(of(stage.releases(THIRD), RemoveNodes)[0])
    stage.lists()
    stage.settles()
    sees_use(stage, {SECOND: 0.9, FOURTH: 0.2}, after_s=1.0)
    assert stage.allocator.leaving == {US: {FOURTH}}


def test_no_more_go_than_the_job_can_run_without() -> None:
    stage = a_stage(min_workers=4)
    for _ in range(3):
        sees_use(stage, {THIRD: 0.1}, after_s=50.0)
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


def test_a_notice_for_a_node_that_is_given_up_is_a_notice() -> None:
    stage = a_stage()
    sees_use(stage, {THIRD: 0.1})
    sees_use(stage, {THIRD: 0.1}, after_s=60.0)
    assert stage.allocator.leaving == {US: {THIRD}}
    stage.notices(THIRD, 15.0)
    assert stage.pool(IOWA).nodes[THIRD].notice_until_s == stage.now_s + 15.0
    assert is_in_cooldown(stage.allocator, IOWA.kind, stage.now_s)
    assert of(stage.releases(THIRD), RemoveNodes) == [], "it is left alone until it is gone"


def test_a_zone_that_takes_a_node_that_is_given_up_has_taken_one() -> None:
    stage = a_stage()
    sees_use(stage, {THIRD: 0.1})
    sees_use(stage, {THIRD: 0.1}, after_s=60.0)
    stage.takes(THIRD)
    stage.sees()
    assert is_in_cooldown(stage.allocator, IOWA.kind, stage.now_s)


def test_what_is_not_asked_for_is_not_looked_at() -> None:
    stage = a_stage(min_utilisation=None)
    for _ in range(3):
        sees_use(stage, {THIRD: 0.0}, after_s=50.0)
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


# The cap after a dismissal


def a_stage_that_gave_one_up(**given: Any) -> PlannedStage:
    stage = a_stage(**given)
    gives_up(stage, THIRD)
    assert held_by(stage) == {IOWA_A: 3}
    return stage


def gives_up(stage: PlannedStage, node: str) -> None:
    stage.sees()
    sees_use(stage, {node: 0.1})
    for _ in range(6):
        sees_use(stage, {node: 0.1}, after_s=10.0)
    assert stage.allocator.leaving == {US: {node}}
    [remove] = of(stage.releases(node), RemoveNodes)
    stage.ends(remove)
    stage.releases()
    stage.lists()


def grows(stage: PlannedStage) -> bool:
    """Report whether more nodes are requested, and add them."""
    made = stage.settles()
    stage.gets(*made)
    stage.lists()
    return any(isinstance(effect, CreatePool | ResizePool) for effect in made)


@pytest.mark.parametrize("seed", range(4))
def test_what_was_given_up_is_not_asked_for_again_by_prices_profiles_deadlines_or_losses(seed: int) -> None:
    chance, stage = random.Random(seed), a_stage_that_gave_one_up()
    began, until_s = len(stage.effects), stage.now_s + BRIEF.regrow_after_s - 120.0
    assert stage.allocator.demand is not None
    criteria = stage.allocator.demand.criteria
    while stage.now_s < until_s:
        stage.ticks(chance.uniform(1.0, 60.0))
        match chance.randrange(4):
            case 0:
                stage.sees_prices(*prices_of((IOWA,), us_central1_a=chance.uniform(0.1, 2.0)))
            case 1:
                measured = a_small_profile(gradient_bytes=chance.randrange(10**6))
                stage.happens(events.ProfileMeasured(stage.now_s, measured))
            case 2:
                left = structs.replace(criteria, min_steps_per_s=chance.uniform(0.1, 2.0))
                stage.asks_for(left)
            case 3:
                stage.sees()
                stage.takes(chance.choice(sorted(stage.machines[stage.pool(IOWA).ref])))
                for abandoned in of(stage.sees(), RemoveNodes):
                    stage.ends(abandoned)
                stage.fills(IOWA)
        stage.sees()
        for _ in range(3):
            stage.lists()
            stage.gets(*stage.settles())
        assert not [more for more in of(stage.effects[began:], ResizePool) if more.size > 3]
    assert held_by(stage) == {IOWA_A: 3}


def test_another_number_that_is_wanted_is_a_reason_to_ask_again() -> None:
    stage = a_stage_that_gave_one_up()
    assert not grows(stage)
    stage.wants(7)
    assert grows(stage)
    assert held_by(stage) == {IOWA_A: 4}


def test_after_a_while_it_is_tried_again_and_each_time_later() -> None:
    stage = a_stage_that_gave_one_up()
    for pause_s in (BRIEF.regrow_after_s, 2 * BRIEF.regrow_after_s, 4 * BRIEF.regrow_after_s):
        stage.ticks(pause_s - 10.0)
        assert not grows(stage)
        stage.ticks(10.0)
        assert grows(stage)
        assert held_by(stage) == {IOWA_A: 4}
        gives_up(stage, THIRD)


# Measured steps


def test_a_measured_profile_is_planned_with_and_a_plan_of_the_old_one_is_not_followed() -> None:
    stage = a_running_stage(IOWA, WEST, min_workers=2, max_workers=2)
    measured = a_small_profile(gradient_bytes=5 * 10**8)
    assert of(stage.happens(events.ProfileMeasured(stage.now_s, measured)), MakePlan) == []
    assert stage.allocator.plans.facts is not None
    assert stage.allocator.plans.basis != stage.allocator.plans.facts
    [ask] = of(stage.ticks(0.5), MakePlan)
    assert ask.profile == measured


def test_a_deadline_is_planned_for_once_steps_were_measured() -> None:
    steps = a_small_profile(gradient_bytes=3 * 10**9)
    stage = a_running_stage(
        IOWA,
        min_workers=1,
        max_workers=4,
        objective=Objective.DEADLINE,
        min_steps_per_s=0.1,
        profile=structs.replace(steps, is_assumed=True),
    )
    assert held_by(stage) == {IOWA_A: 4}, "as fast as may be"
    stage.happens(events.ProfileMeasured(stage.now_s, steps))
    stage.settles()
    plan = stage.allocator.plans.plan
    assert plan is not None and (plan.change, sum(plan.placement.values())) == (Change.SHRINK, 2)
    assert plan.score is not None and plan.score.estimate.steps_per_s >= 0.1


def test_a_job_that_is_not_planned_has_no_use_for_a_profile() -> None:
    stage = a_full_stage()
    assert stage.happens(events.ProfileMeasured(stage.now_s, a_small_profile())) == []
    assert stage.happens(events.UseSeen(stage.now_s, of_us({"us-a-1": 0.0}))) == []

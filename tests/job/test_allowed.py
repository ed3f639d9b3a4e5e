"""Scripts that accept only certain numbers of workers: `workers.allowed`."""

import pytest

from controlplane.job import texts
from messages.jobs import Workers, contradictions
from messages.records import Phase
from tests.job.live_stage import a_live_stage
from tests.job.stage import a_spec, a_stage, halts, kept, released

SPEC = a_spec(workers=4, allowed=(2, 4), settle_s=0.0)


def test_a_world_has_the_largest_allowed_number_of_workers_and_the_others_wait_as_spares() -> None:
    stage = a_stage(SPEC)
    stage.reports(keeps=4)
    stage.join("a", "b", "c")
    stage.wait(21.0)
    assert set(stage.world) == {"a", "b"}
    effects = stage.ready("a", "b")
    assert stage.phase is Phase.RUNNING
    assert released(effects) == set()


def test_a_spare_that_makes_no_larger_world_does_not_end_the_present_one() -> None:
    stage = a_stage(SPEC).runs("a", "b", "c", "d")
    stage.sees_gone("d")
    stage.parked("a", "b", "c")
    stage.ready("a", "b")
    assert set(stage.world) == {"a", "b"}
    assert halts(stage.wait(1.0)) == []
    assert halts(stage.join("e"))
    stage.parked("a", "b")
    assert set(stage.world) == {"a", "b", "c", "e"}


def test_with_fewer_than_the_smallest_the_job_waits() -> None:
    stage = a_stage(SPEC)
    stage.join("a")
    stage.wait(30.0)
    assert stage.phase is Phase.WAITING
    assert stage.job.why == texts.too_few_ready(texts.workers_here(1), 2)


def test_only_as_many_as_can_be_in_a_world_are_wanted() -> None:
    stage = a_stage(a_spec(workers=5, allowed=(2, 4)))
    assert kept(stage.reports(keeps=0)) == [4]


def test_trainers_with_the_sdk_continue_in_a_world_of_an_allowed_size() -> None:
    stage = a_live_stage(SPEC).trains("a", "b", "c", "d")
    stage.sees_gone("d")
    stage.parks("a", "b", "c")
    assert set(stage.world) == {"a", "b"}
    stage.enters("a", "b")
    stage.join("e")
    stage.attaches("e")
    stage.attaches("c")
    assert stage.prepared is not None
    assert {member.worker for member in stage.prepared.members} == {"a", "b", "c", "e"}


def test_survivors_that_are_too_few_for_any_allowed_size_keep_the_state_and_wait() -> None:
    stage = a_live_stage(SPEC).trains("a", "b")
    stage.sees_gone("b")
    stage.parks("a")
    assert stage.phase is Phase.WAITING
    assert stage.job.why.startswith(texts.too_few_warm(1, 2))


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (Workers(max=4, allowed=(4, 2)), "ascending"),
        (Workers(max=4, allowed=(2, 2)), "ascending"),
        (Workers(max=4, allowed=(2, 8)), "workers.max = 4"),
        (Workers(max=4, min=2, allowed=(1, 4)), "workers.min = 2"),
    ],
)
def test_sizes_that_cannot_be_are_refused(workers: Workers, said: str) -> None:
    spec = a_spec()
    (path, text), *_ = contradictions(type(spec)(spec.name, spec.launch, workers))
    assert path == "workers.allowed"
    assert said in text


def test_an_allowed_size_makes_whole_replicas() -> None:
    spec = a_spec(workers=4, allowed=(2, 3), replica=2)
    [(path, message)] = contradictions(spec)
    assert path == "workers.allowed"
    assert "3 ×" in message and "replica = 2" in message

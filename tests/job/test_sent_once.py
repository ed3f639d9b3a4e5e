"""A world and its halt go to all workers once, and again only to those that have not confirmed them."""

from msgspec import structs

from controlplane.job import events
from controlplane.job.commands import ADDRESSED_AT_MOST
from controlplane.job.effects import JobEffect, Publish
from messages.ids import Generation, WorkerId
from messages.workers import WorkerPhase
from messages.worlds import Assignment, Halt
from tests.job.stage import Stage, a_spec, a_stage


def sent_to(effects: list[JobEffect], kind: type[Assignment | Halt]) -> list[set[WorkerId] | None]:
    """Receivers of each message; None for all."""
    sent = [e for e in effects if isinstance(e, Publish) and isinstance(e.message, kind)]
    return [{worker for _, worker in effect.to} or None for effect in sent]


def has_assignment(stage: Stage, worker: str) -> list[JobEffect]:
    status = stage.statuses[WorkerId(worker)]
    stage.seqs[status.worker] += 1
    has = structs.replace(status, seq=stage.seqs[status.worker], assigned=Generation(stage.generation))
    return stage.happens(events.WorkerSpoke(stage.now_s, has))


def test_an_assignment_is_sent_again_only_to_members_that_lack_it() -> None:
    stage = a_stage(a_spec(workers=3))
    effects = stage.join("w1", "w2", "w3")
    assert sent_to(effects, Assignment) == [None]
    has_assignment(stage, "w1")
    assert sent_to(stage.wait(1.1), Assignment) == [{"w2", "w3"}]
    has_assignment(stage, "w2")
    assert sent_to(stage.wait(1.1), Assignment) == [{"w3"}]
    has_assignment(stage, "w3")
    assert sent_to(stage.wait(1.1), Assignment) == []


def test_a_halt_is_sent_again_only_to_members_that_have_not_parked() -> None:
    stage = a_stage(a_spec(workers=3)).runs("w1", "w2", "w3")
    assert sent_to(stage.sees_gone("w3"), Halt) == [None]
    stage.parked("w1")
    assert sent_to(stage.wait(1.1), Halt) == [{"w2"}]


def test_what_very_many_lack_is_sent_to_all_again() -> None:
    many = ADDRESSED_AT_MOST + 1
    stage = a_stage(a_spec(workers=many))
    workers = [f"w{number}" for number in range(many)]
    assert sent_to(stage.join(*workers), Assignment) == [None]
    assert sent_to(stage.wait(1.1), Assignment) == [None]
    has_assignment(stage, "w0")
    assert sent_to(stage.wait(1.1), Assignment) == [set(map(WorkerId, workers[1:]))]


def test_a_worker_that_trains_is_not_sent_its_world() -> None:
    stage = a_stage(a_spec(workers=2)).runs("w1", "w2")
    stage.reports_status("w1", WorkerPhase.READY)
    assert sent_to(stage.wait(5.0), Assignment) == []

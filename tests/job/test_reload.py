from msgspec import structs
from msgspec.structs import replace

from controlplane.job import events, reload, texts
from controlplane.job.effects import JobEffect
from controlplane.job.reload import PROVEN_S
from messages.ids import Rank, WorkerId
from messages.records import Phase
from messages.workers import TrainerExit, WorkerPhase
from messages.worlds import Invite
from tests.job.live_stage import LiveStage, a_live_job, a_live_stage, invited
from tests.job.stage import a_spec, assignments, failed, halts, published, released, reported


def trains_on(stage: LiveStage) -> list[JobEffect]:
    stage.now_s += PROVEN_S
    return stage.reports(*stage.observations())


def reloads(stage: LiveStage) -> list[JobEffect]:
    """Reloads a job whose world has trained for a while."""
    trains_on(stage)
    return stage.happens(events.ReloadAsked(stage.now_s))


def leaves(stage: LiveStage, worker: str) -> list[JobEffect]:
    return stage.happens(events.WorkerSaidLeft(stage.now_s, WorkerId(worker), "no longer needed"))


def takes_in(stage: LiveStage, joining_worker: str, *others: str) -> None:
    stage.join(joining_worker)
    stage.attaches(joining_worker)
    stage.enters(joining_worker, *others)
    stage.catches_up(joining_worker)


def test_one_worker_after_the_other_is_replaced_and_nobody_halts() -> None:
    stage = a_live_job("a", "b")
    effects = reloads(stage)
    assert texts.still_run_old_code(2) in reported(effects, "job_reloading")[0].text
    assert assignments(effects)[0].why == reload.replaced(WorkerId("a"))
    assert released(stage.enters("b")) == {"a"}
    effects = leaves(stage, "a")
    assert (stage.prepared, invited(effects)) == (None, set()), "b waits until a is replaced"
    assert stage.job.why == f"{texts.still_run_old_code(1)}: {reload.INCOMPLETE}"
    takes_in(stage, "c", "b")
    assert stage.job.record.prepared is None
    assert stage.job.why == f"{texts.still_run_old_code(1)}: {reload.UNPROVEN}"
    trains_on(stage)
    assert stage.prepared is not None
    assert {member.worker for member in stage.prepared.members} == {"c"}
    assert released(stage.enters("c")) == {"b"}
    assert reported(leaves(stage, "b"), "job_reloaded") != []
    takes_in(stage, "d", "c")
    assert (stage.job.record.prepared, stage.job.record.outdated) == (None, ())
    assert halts(stage.effects) == []
    assert (stage.job.record.losses, stage.job.record.failures) == (0, 0)


def test_a_joining_worker_that_takes_long_to_get_the_state_has_proven_nothing_yet() -> None:
    stage = a_live_job("a", "b")
    reloads(stage)
    stage.enters("b")
    leaves(stage, "a")
    stage.join("c")
    stage.attaches("c")
    stage.enters("b", "c")
    trains_on(stage)
    stage.catches_up("c")
    assert stage.prepared is None
    trains_on(stage)
    assert stage.prepared is not None


def test_outdated_workers_without_a_rank_are_released_and_never_join_again() -> None:
    stage = a_live_job("a", "b")
    reloads(stage)
    stage.enters("b")
    assert released(stage.wait(1.0)) == {"a"}
    assert (stage.prepared, invited(stage.effects)) == (None, set())


def test_a_joining_worker_that_was_warm_with_the_code_from_before_goes_too() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    assert "c" in released(reloads(stage))
    stage.attaches("c")
    assert stage.prepared is None, "c runs the old code, and without it the world is not complete"


def test_code_that_does_not_work_costs_one_worker_and_people_are_told_why() -> None:
    stage = a_live_job("a", "b", "c")
    reloads(stage)
    stage.enters("b", "c")
    leaves(stage, "a")
    stage.join("d")
    exit_ = TrainerExit(Rank(3), code=1, tail=("NameError: name 'tensor' is not defined",))
    effects = stage.happens(events.WorkerSpoke(stage.now_s, stage.statuses[WorkerId("d")], exit_))
    announced = reported(effects, "joining_failed")[0]
    assert (announced.fields["worker"], announced.fields["code"], announced.why) == ("d", 1, exit_.tail[0])
    assert "worker d" in announced.text and texts.how_it_ended(exit_) in announced.text
    how = f"it {texts.how_it_ended(exit_)}: {exit_.tail[0]}"
    assert stage.job.why.endswith(reload.new_code_failed(WorkerId("d"), how))
    stage.wait(60.0)
    assert (stage.phase, stage.prepared, stage.world) == (Phase.RUNNING, None, {"b": (0,), "c": (1,)})
    assert stage.job.record.failures == 0


def test_new_code_that_fails_in_the_world_uses_up_no_failure_and_stops_the_reload() -> None:
    stage = a_live_job("a", "b", "c")
    reloads(stage)
    stage.enters("b", "c")
    leaves(stage, "a")
    takes_in(stage, "d", "b", "c")
    for _ in range(stage.job.spec.failures.max + 2):
        stage.tell("d", phase=WorkerPhase.ENDED, exits=(failed(Rank(2)),))
        assert stage.phase is Phase.RESHAPING
        stage.parks("b", "c")
        stage.tell("d", phase=WorkerPhase.PARKED)
        assert (stage.world, stage.live.previous) == ({"b": (0,), "c": (1,)}, (0, 1))
        stage.enters("b", "c")
        assert reload.new_code_failed(WorkerId("d"), "").removesuffix("()") in stage.job.why
        stage.wait(stage.job.spec.failures.backoff_max_s)
        stage.attaches("d")
        stage.enters("b", "c", "d")
        stage.catches_up("d")
    assert (stage.job.record.failures, stage.job.record.outdated) == (0, ("b", "c"))


def test_a_joining_worker_is_told_on_what_terms_the_others_train() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.tell("a", *(structs.replace(trainer, terms="Adam") for trainer in stage.trainers["a"]))
    (invite,) = published(stage.join("c"), Invite)
    assert invite.terms == "Adam"


def test_a_loss_on_the_way_leaves_those_to_be_replaced_as_they_were() -> None:
    stage = a_live_job("a", "b", "c")
    reloads(stage)
    stage.sees_gone("b")
    stage.parks("a", "c")
    stage.enters("a", "c")
    assert (stage.world, stage.job.record.outdated) == ({"a": (0,), "c": (1,)}, ("a", "c"))
    takes_in(stage, "d", "a", "c")
    trains_on(stage)
    assert stage.prepared is not None
    assert "a" not in {member.worker for member in stage.prepared.members}


def test_nobody_goes_when_all_are_needed() -> None:
    stage = a_live_job("a", "b", at_least=2)
    reloads(stage)
    assert stage.prepared is None
    assert stage.job.why.endswith(reload.NONE_TO_SPARE)


def test_who_is_noticed_goes_first() -> None:
    stage = a_live_job("a", "b", "x", at_least=2)
    stage.notices("x")
    assert stage.prepared is not None
    assert {member.worker for member in stage.prepared.members} == {"a", "b"}
    reloads(stage)
    stage.enters("a", "b")
    assert (stage.job.record.prepared, stage.world) == (None, {"a": (0,), "b": (1,)})


def test_a_notice_in_a_reload_is_not_made_to_wait_for_it() -> None:
    stage = a_live_job("a", "b", "x", at_least=2)
    stage.happens(events.ReloadAsked(stage.now_s))
    stage.notices("x")
    trains_on(stage)
    assert stage.prepared is not None
    assert {member.worker for member in stage.prepared.members} == {"a", "b"}


def test_who_is_left_over_from_whole_replicas_is_not_waited_for() -> None:
    stage = a_live_stage(a_spec(workers=5, at_least=2, replica=2)).trains("a", "b", "c", "d")
    stage.join("e")
    stage.attaches("e")
    reloads(stage)
    leaves(stage, "e")
    stage.join("f")
    stage.attaches("f")
    trains_on(stage)
    assert stage.prepared is not None
    assert "a" not in {member.worker for member in stage.prepared.members}


def test_failures_count_again_when_nobody_with_the_code_from_before_is_left() -> None:
    stage = a_live_job("a", "b")
    ghost = structs.replace(stage.job.record, outdated=(WorkerId("ghost"),))
    stage.job = replace(stage.job, record=ghost)
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(failed(Rank(1)),))
    stage.parks("a")
    stage.tell("b", phase=WorkerPhase.PARKED)
    assert (stage.job.record.failures, stage.job.record.outdated) == (1, ())


def test_another_master_continues_with_it() -> None:
    stage = a_live_job("a", "b")
    reloads(stage)
    stage.enters("b")
    leaves(stage, "a")
    heir = stage.heir()
    heir.tell("b", *heir.trainers["b"])
    takes_in(heir, "c", "b")
    trains_on(heir)
    assert heir.prepared is not None
    assert {member.worker for member in heir.prepared.members} == {"c"}


def test_without_the_sdk_all_begin_again_at_once() -> None:
    stage = a_live_stage(a_spec(workers=2, at_least=2))
    stage.runs("a", "b")
    assert len(halts(reloads(stage))) == 1
    for worker in ("a", "b"):
        stage.reports_status(worker, WorkerPhase.PARKED)
    assert (stage.job.record.outdated, stage.generation) == ((), 2)


def test_a_job_without_a_world_has_nobody_to_replace() -> None:
    stage = a_live_stage(a_spec(workers=2))
    reloads(stage)
    assert (stage.job.record.outdated, stage.job.record.reloads) == ((), 1)


def test_an_ended_job_is_left_alone() -> None:
    stage = a_live_job("a")
    stage.happens(events.StopAsked(stage.now_s, "stopped by a person"))
    stage.ends("a")
    assert stage.phase is Phase.STOPPED
    reloads(stage)
    assert stage.job.record.reloads == 0

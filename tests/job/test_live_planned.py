from msgspec import structs

from controlplane.job import events, texts
from controlplane.job.decide import decide
from controlplane.job.effects import Announce, StartStore
from messages.ids import WorkerId
from messages.records import Phase
from messages.workers import TrainerStatus, WorkerPhase
from messages.worlds import Entry
from tests.job.live_stage import LiveStage, a_live_job, a_live_stage, invited
from tests.job.stage import a_spec, assignments, clean, failed, halts, released, reported

WHY = "does it run the same script?"


def test_a_notice_prepares_the_next_world_while_the_present_one_trains() -> None:
    stage = a_live_job("a", "b", "c")
    effects = stage.notices("b")
    assert (stage.phase, stage.generation, halts(effects)) == (Phase.RUNNING, 1, [])
    prepared = assignments(effects)[0]
    assert prepared == stage.prepared
    assert (prepared.generation, prepared.world_size) == (2, 2)
    assert prepared.live is not None
    assert (prepared.live.entry, prepared.live.previous) == (Entry.PLANNED, (0, 2))
    assert prepared.live.leaving_workers == ("b",)
    assert reported(effects, "world_decided")[0].fields["entry"] == "planned"


def test_the_only_one_with_the_state_stays_until_the_joining_worker_has_it() -> None:
    stage = a_live_job("a")
    stage.notices("a")
    assert stage.prepared is None
    stage.attaches("b")
    assert stage.prepared is not None and stage.prepared.live is not None
    assert (stage.prepared.live.previous, stage.prepared.live.leaving_workers) == ((0, -1), ())
    assert released(stage.enters("a", "b")) == set()
    assert (stage.world, stage.prepared) == ({"a": (0,), "b": (1,)}, None)
    stage.catches_up("b")
    assert stage.prepared is not None and stage.prepared.live is not None
    assert (stage.prepared.live.previous, stage.prepared.live.leaving_workers) == ((1,), ("a",))
    assert released(stage.enters("b")) == {"a"}
    assert stage.world == {"b": (0,)}


def test_a_resting_worker_does_not_join_and_nothing_waits_for_it() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.tell("c", TrainerStatus(0, waits=WHY, resting=True), phase=WorkerPhase.IDLE)
    assert stage.prepared is None
    assert stage.job.why == texts.rejected(WorkerId("c"), WHY)
    stage.notices("b")
    assert stage.prepared is not None and [member.worker for member in stage.prepared.members] == ["a"]
    stage.enters("a")
    stage.attaches("c")
    assert stage.prepared is not None and [member.worker for member in stage.prepared.members] == ["a", "c"]


def test_when_all_have_gone_over_the_leaving_worker_is_released() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("b")
    assert released(stage.enters("a")) == set()
    effects = stage.enters("c")
    assert released(effects) == {"b"}
    assert (stage.phase, stage.generation, stage.prepared) == (Phase.RUNNING, 2, None)
    assert (stage.world, stage.job.record.formed) == ({"a": (0,), "c": (1,)}, 2)
    assert reported(effects, "world_running")[0].fields["generation"] == 2
    assert (stage.job.record.losses, stage.job.record.failures) == (0, 0)


def test_a_prepared_world_is_published_only_when_it_is_saved_and_then_until_all_have_gone_over() -> None:
    stage = a_live_job("a", "b")
    stage.save_at_once = False
    assert assignments(stage.notices("b")) == []
    stage.happens(events.RecordSaved(stage.now_s, stage.job.record))
    assert len(assignments(stage.effects)) == 2
    stage.save_at_once = True
    assert len(assignments(stage.wait(1.0))) == 1
    stage.enters("a")
    assert assignments(stage.wait(1.0)) == []


def test_a_leaving_worker_that_dies_before_the_switch_is_a_loss() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("b")
    assert halts(stage.sees_gone("b"))[0].generation == 3
    stage.parks("a", "c")
    assert (stage.generation, stage.prepared) == (3, None)
    assert stage.world == {"a": (0,), "c": (1,)}


def test_a_leaving_worker_that_dies_after_the_switch_disturbs_nobody() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("b")
    stage.enters("a", "c")
    assert halts(stage.sees_gone("b")) == []
    assert stage.phase is Phase.RUNNING


def test_a_loss_when_some_have_gone_over_halts_both_worlds() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("c")
    stage.enters("a")
    stage.sees_gone("b")
    assert (stage.phase, stage.generation) == (Phase.RESHAPING, 3)
    stage.parks("a")
    assert stage.job.why.endswith(texts.waits_to("park", [WorkerId("c")]))
    stage.parks("c")
    assert (stage.world, stage.prepared) == ({"a": (0,)}, None)


def test_a_hand_over_is_not_begun_without_the_time_for_it() -> None:
    stage = a_live_job("a", "b")
    assert halts(stage.notices("b", 0.4))[0].generation == 2
    stage.parks("a", "b")
    assert stage.world == {"a": (0,)}
    assert stage.job.record.losses == 0


def test_a_hand_over_that_takes_too_long_ends_in_time() -> None:
    stage = a_live_job("a", "b")
    stage.notices("b", 0.8)
    assert stage.prepared is not None
    decision = decide(stage.job, events.Ticked(stage.now_s))
    assert decision.wake_at_s is not None
    assert abs(decision.wake_at_s - (stage.now_s + 0.3)) < 1e-9
    stage.now_s = decision.wake_at_s
    assert halts(stage.happens(events.Ticked(stage.now_s)))[0].generation == 3


def test_the_deadline_of_a_notice_is_learned_from_the_status_too() -> None:
    stage = a_live_job("a", "b")
    stage.reports_status("b", WorkerPhase.READY, trainers=stage.trainers["b"], notice_s=0.3)
    assert stage.phase is Phase.RESHAPING


def test_a_world_that_cannot_do_without_the_leaving_worker_trains_on_as_long_as_it_may() -> None:
    stage = a_live_job("a", "b", at_least=2)
    stage.notices("b", 15.0)
    assert (stage.phase, stage.prepared) == (Phase.RUNNING, None)
    assert stage.job.why.endswith(texts.too_few_left(1, 2))
    stage.join("c")
    stage.attaches("c")
    assert stage.prepared is not None
    assert {member.worker for member in stage.prepared.members} == {"a", "c"}


def test_scaling_down_is_planned() -> None:
    stage = a_live_job("a", "b", "c")
    stage.happens(events.ScaleAsked(stage.now_s, 2))
    assert stage.prepared is not None
    asked, decided = [effect for effect in stage.effects if isinstance(effect, Announce)][-2:]
    assert (asked.kind, decided.kind) == ("job_scaled", "world_decided"), "the cause is told first"
    assert decided.fields["leaving"] == "c"
    stage.enters("a", "b")
    assert stage.world == {"a": (0,), "b": (1,)}
    assert released(stage.effects) == {"c"}


def test_a_joining_worker_is_invited_and_joins_when_it_is_warm() -> None:
    stage = a_live_job("a", "b", wanted=3)
    effects = stage.join("c")
    assert (invited(effects), stage.phase, stage.prepared) == ({"c"}, Phase.RUNNING, None)
    assert invited(stage.wait(1.0)) == {"c"}
    effects = stage.attaches("c")
    prepared = assignments(effects)[0]
    assert prepared.why == "worker c joined"
    assert prepared.live is not None
    assert prepared.live.previous == (0, 1, -1)
    assert invited(stage.wait(1.0)) == set()
    stage.enters("a", "b", "c")
    assert (stage.generation, stage.world) == (2, {"a": (0,), "b": (1,), "c": (2,)})


def test_nobody_is_invited_that_is_not_wanted() -> None:
    stage = a_live_job("a", "b")
    assert invited(stage.join("c")) == set()


def test_a_script_without_the_sdk_is_restarted_for_a_joining_worker_as_ever() -> None:
    stage = a_live_stage(a_spec(workers=3, at_least=2))
    stage.runs("a", "b")
    effects = stage.join("c")
    assert (len(halts(effects)), invited(effects)) == (1, set())


def test_trainers_that_are_about_to_enter_their_world_are_not_ended_for_a_joining_worker() -> None:
    stage = a_live_stage(a_spec(workers=3, at_least=2))
    stage.runs("a", "b")
    stage.tell("a", *stage._fresh("a", done=0))
    assert halts(stage.join("c")) == []


def test_a_joining_worker_that_dies_while_it_is_awaited_costs_a_repair_and_no_state() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    assert halts(stage.sees_gone("c"))[0].generation == 3
    stage.parks("a", "b")
    assert (stage.world, stage.live.previous) == ({"a": (0,), "b": (1,)}, (0, 1))
    assert stage.job.record.failures == 0


def test_a_joining_worker_that_is_in_the_next_world_ahead_of_the_others_does_not_make_it_real() -> None:
    stage = a_live_job("a", "b", wanted=2)
    stage.job = structs.replace(stage.job, spec=a_spec(workers=3))
    stage.join("c")
    stage.attaches("c")
    stage.happens(events.ScaleAsked(stage.now_s, 3))
    stage.enters("c")
    stage.happens(events.ScaleAsked(stage.now_s, 1))
    stage.sees_gone("a")
    stage.parks("b", "c")
    assert (stage.generation, stage.world, stage.live.previous) == (3, {"b": (0,)}, (1,))


def test_a_joining_worker_whose_trainer_ends_while_it_is_awaited_is_given_up() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    stage.tell("c", phase=WorkerPhase.IDLE)
    assert stage.phase is Phase.RESHAPING
    stage.parks("a", "b")
    stage.tell("c", phase=WorkerPhase.IDLE)
    assert stage.world == {"a": (0,), "b": (1,)}


def test_a_joining_worker_that_has_not_caught_up_is_left_out_of_a_repair_and_joins_later() -> None:
    stage = joined()
    assert stage.phase is Phase.RUNNING
    stage.sees_gone("a")
    stage.parks("b", "c")
    assert stage.world == {"b": (0,)}
    stage.enters("b")
    assert stage.prepared is not None
    assert stage.prepared.live is not None
    assert stage.prepared.live.previous == (0, -1)


def joined() -> LiveStage:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    stage.enters("a", "b", "c")
    return stage


def test_the_next_change_waits_until_a_joining_worker_has_caught_up() -> None:
    stage = joined()
    stage.notices("a")
    assert stage.prepared is None
    assert stage.job.why.endswith(texts.waits_to("catch up", [WorkerId("c")]))
    stage.catches_up("c")
    assert stage.prepared is not None


def test_a_prepared_world_that_nobody_enters_is_given_up() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    stage.now_s += 20.0
    assert halts(stage.happens(events.Ticked(stage.now_s)))[0].why == texts.next_world_late(20.0)


def test_a_prepared_world_that_one_of_them_cannot_build_is_given_up_at_once() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    assert stage.prepared is not None
    hopeless = [structs.replace(trainer, broken=stage.prepared.generation) for trainer in stage.trainers["b"]]
    assert halts(stage.tell("b", *hopeless))[0].generation == 3
    stage.parks("a", "b", "c")
    stage.enters("a", "b")
    assert stage.world == {"a": (0,), "b": (1,)}
    assert stage.prepared is not None and stage.prepared.world_size == 3


def test_a_trainer_that_fails_right_after_it_went_over_is_a_failure_of_the_script() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("c")
    stage.enters("a")
    stage.tell("b", phase=WorkerPhase.ENDED, generation=2, exits=(failed(1, "ValueError: no"),))
    stage.parks("a", "c")
    stage.tell("b", phase=WorkerPhase.PARKED)
    assert (stage.job.record.failures, stage.world) == (1, {"a": (0,)})


def test_training_may_end_before_the_switch() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    stage.tell("a", phase=WorkerPhase.ENDED, exits=(clean(0),))
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(clean(1),))
    assert (stage.phase, stage.prepared) == (Phase.SUCCEEDED, None)


def test_a_store_that_was_lost_is_started_before_anything_is_prepared() -> None:
    stage = a_live_job("a", "b")
    stage.happens(events.StoreLost(stage.now_s))
    stage.stores_start = False
    effects = stage.notices("b")
    assert [effect.generation for effect in effects if isinstance(effect, StartStore)] == [2]
    assert stage.prepared is None
    stage.stores_start = True
    stage.wait(1.0)


def test_workers_with_several_ranks_go_over_as_one() -> None:
    stage = a_live_job("a", "b", ranks=2)
    stage.notices("a")
    assert stage.prepared is not None
    assert stage.prepared.live is not None
    assert stage.prepared.live.previous == (2, 3)
    stage.enters("b")
    assert stage.world == {"b": (0, 1)}


def test_a_notice_that_comes_with_a_joining_worker_is_one_change() -> None:
    stage = a_live_job("a", "b")
    stage.join("c")
    stage.attaches("c")
    assert stage.prepared is None
    stage.notices("a")
    assert stage.prepared is not None
    assert [member.worker for member in stage.prepared.members] == ["b", "c"]
    assert WorkerId("a") in stage.job.workers

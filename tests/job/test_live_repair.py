from msgspec import structs

from controlplane.job import events, texts
from controlplane.job.decide import decide
from controlplane.job.effects import SaveRecord, StartStore, TellCluster
from controlplane.job.stopping import checkpoint_text
from messages.clusters import RemoveWorkers
from messages.ids import Rank, WorkerId
from messages.records import Phase
from messages.workers import SampleCertificate, WorkerPhase, WrittenCheckpoint
from messages.worlds import Entry
from tests.job.live_stage import a_live_job, a_live_stage, invited, published_kinds
from tests.job.stage import a_spec, assignments, clean, failed, halts, released, reported

WHY = "asked by ada"


def test_a_loss_halts_at_once_and_the_survivors_continue_from_what_they_have() -> None:
    stage = a_live_job("a", "b", "c")
    assert halts(stage.sees_gone("b"))[0].generation == 2
    stage.parks("a", done=6)
    effects = stage.parks("c")
    world = assignments(effects)[0]
    assert (stage.phase, stage.world) == (Phase.FORMING, {"a": (0,), "c": (1,)})
    assert world.live == stage.live
    assert (stage.live.entry, stage.live.resume, stage.live.source) == (Entry.REPAIR, 6, 0)
    assert (stage.live.laggards, stage.live.held) == ((1,), (((0, 1),), ()))
    assert stage.live.previous == (0, 2)
    assert stage.live.leaving_workers == ("b",)
    stage.enters("a", "c")
    assert (stage.phase, stage.job.record.formed, stage.job.record.losses) == (Phase.RUNNING, 2, 1)


def test_the_store_serves_on() -> None:
    stage = a_live_job("a", "b")
    first = stage.job.record.assignment
    effects = stage.sees_gone("b")
    effects += stage.parks("a")
    second = stage.job.record.assignment
    assert first is not None and second is not None
    assert second.store == first.store
    assert not [effect for effect in effects if isinstance(effect, StartStore)]


def test_a_store_that_was_lost_is_started_again_while_the_trainers_park() -> None:
    stage = a_live_job("a", "b")
    stage.happens(events.StoreLost(stage.now_s))
    effects = stage.sees_gone("b")
    assert [effect.generation for effect in effects if isinstance(effect, StartStore)] == [2]
    stage.parks("a")
    assert stage.phase is Phase.FORMING
    assert stage.job.record.assignment is not None
    assert stage.job.record.assignment.store.port == 29402


def test_the_halt_does_not_wait_for_the_record_but_the_world_does() -> None:
    stage = a_live_job("a", "b")
    stage.save_at_once = False
    effects = stage.sees_gone("b")
    assert [type(effect) for effect in effects if isinstance(effect, SaveRecord)] == [SaveRecord]
    assert published_kinds(effects) == ["Halt"]
    effects = stage.parks("a")
    assert (stage.phase, published_kinds(effects)) == (Phase.FORMING, [])
    stage.save_at_once = True
    saving = stage.job.storage.saving
    assert saving is not None
    assert published_kinds(stage.happens(events.RecordSaved(stage.now_s, saving))) == ["Assignment"]


def test_a_peer_that_lost_touch_is_the_first_sign_and_no_failure() -> None:
    stage = a_live_job("a", "b", "c")
    assert halts(stage.sign("a"))[0].why == texts.lost_peers(Rank(0), WorkerId("a"))
    stage.parks("a", "b", "c")
    assert stage.world == {"a": (0,), "b": (1,), "c": (2,)}
    assert (stage.job.record.failures, stage.job.record.losses) == (0, 0)
    stage.enters("a", "b", "c")
    assert halts(stage.sign("b"))[0].generation == 3


def test_the_one_that_fell_out_of_the_broken_world_by_itself_need_not_answer_the_halt() -> None:
    stage = a_live_job("a", "b")
    stage.sign("a")
    stage.sees_gone("b")
    assert (stage.phase, stage.generation, stage.world) == (Phase.FORMING, 2, {"a": (0,)})


def test_a_member_that_does_not_park_in_time_is_removed_exactly_then() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sign("a")
    stage.parks("a", "c")
    stage.wait(0.1)
    stage.wait(0.1)
    stage.wait(0.1)
    decision = decide(stage.job, events.Ticked(stage.now_s))
    assert decision.wake_at_s is not None
    assert abs(decision.wake_at_s - (stage.now_s + 0.1)) < 1e-9
    stage.now_s = decision.wake_at_s
    effects = stage.happens(events.Ticked(stage.now_s))
    assert stage.world == {"a": (0,), "c": (1,)}
    assert stage.job.gone[WorkerId("b")] == texts.not_parked(0.4)
    commands = [effect.command for effect in effects if isinstance(effect, TellCluster)]
    assert [c.workers for c in commands if isinstance(c, RemoveWorkers)] == [("b",)]


def test_a_member_that_is_seen_alive_has_more_time_to_park() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sign("a")
    stage.parks("a", "c")
    for _ in range(18):
        stage.wait(0.1)
        stage.is_seen_alive("b")
    assert stage.phase is Phase.RESHAPING
    stage.parks("b")
    assert stage.world == {"a": (0,), "b": (1,), "c": (2,)}
    assert stage.job.record.losses == 0


def test_a_member_that_is_seen_alive_and_never_parks_is_removed_in_the_end() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sign("a")
    stage.parks("a", "c")
    for _ in range(21):
        stage.wait(0.1)
        stage.is_seen_alive("b")
    assert stage.world == {"a": (0,), "c": (1,)}
    assert stage.job.gone[WorkerId("b")] == texts.not_parked(2.0)


def test_a_member_that_was_seen_alive_and_falls_silent_is_removed_soon() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sign("a")
    stage.parks("a", "c")
    stage.wait(0.2)
    stage.is_seen_alive("b")
    for _ in range(3):
        stage.wait(0.1)
    assert stage.phase is Phase.RESHAPING
    decision = decide(stage.job, events.Ticked(stage.now_s))
    assert decision.wake_at_s is not None
    stage.now_s = decision.wake_at_s
    stage.happens(events.Ticked(stage.now_s))
    assert stage.job.gone[WorkerId("b")] == texts.not_parked(0.6)


def test_only_trainers_that_were_seen_since_the_halt_have_more_time() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sign("a")
    stage.is_seen_alive("b")
    stage.parks("a", "b", "c")
    stage.enters("a", "b", "c")
    stage.sign("a")
    stage.parks("a", "c")
    for _ in range(5):
        stage.wait(0.1)
    assert WorkerId("b") in stage.job.gone


def test_a_halt_is_said_again_before_its_deadline() -> None:
    stage = a_live_job("a", "b")
    stage.sign("a")
    decision = decide(stage.job, events.Ticked(stage.now_s))
    assert decision.wake_at_s == stage.now_s + 0.1
    assert len(halts(stage.wait(0.1))) == 1
    assert halts(stage.wait(0.05)) == []


def test_when_nobody_parks_it_is_rather_the_halt_that_did_not_arrive() -> None:
    stage = a_live_job("a", "b")
    stage.happens(events.WorkerNoticeCame(stage.now_s, WorkerId("b"), 0.1, "signal"))
    for _ in range(8):
        stage.wait(0.5)
    assert stage.job.workers.keys() == {"a", "b"}
    stage.parks("a")
    stage.wait(0.1)
    assert stage.world == {"a": (0,)}
    assert WorkerId("b") in stage.job.gone


def test_a_master_that_was_itself_too_slow_gives_them_another_moment() -> None:
    stage = a_live_job("a", "b")
    stage.sign("a")
    stage.wait(3.0)
    assert stage.phase is Phase.RESHAPING
    stage.parks("a", "b")
    assert stage.world == {"a": (0,), "b": (1,)}


def test_a_member_whose_trainers_have_not_attached_may_take_as_long_as_ever() -> None:
    stage = a_live_stage(a_spec(workers=2))
    stage.runs("a", "b")
    stage.tell("a", *stage._fresh("a", done=1))
    stage.sign("a")
    stage.parks("a")
    stage.wait(5.0)
    assert WorkerId("b") in stage.job.workers
    assert stage.phase is Phase.RESHAPING


def test_the_one_that_has_not_the_whole_state_is_left_out_and_comes_back_later() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sees_gone("a")
    stage.parks("b")
    stage.parks("c", active=False)
    assert stage.world == {"b": (0,)}
    stage.enters("b")
    assert stage.prepared is not None
    assert {member.worker for member in stage.prepared.members} == {"b", "c"}
    assert stage.prepared.live is not None
    assert stage.prepared.live.previous == (0, -1)


def test_the_one_that_is_more_than_one_sum_behind_is_left_out() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sees_gone("a")
    stage.parks("b", done=9)
    stage.parks("c", done=7)
    assert stage.world == {"b": (0,)}
    assert stage.live.resume == 9


def test_a_joining_worker_never_takes_the_place_of_the_last_that_has_the_state() -> None:
    stage = a_live_stage(a_spec(workers=4, at_least=1, replica=2)).trains("c", "d")
    stage.join("a", "b")
    stage.attaches("a")
    stage.attaches("b")
    stage.enters("a", "b", "c", "d")
    stage.sees_gone("d")
    stage.parks("a", "b", "c")
    assert stage.live.previous == (-1, 2)
    assert stage.world == {"a": (0,), "c": (1,)}


def test_a_second_loss_while_the_world_is_made_again_loses_nothing() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sees_gone("c")
    stage.parks("a", "b")
    stage.enters("a")
    assert halts(stage.sees_gone("b"))[0].generation == 3
    stage.parks("a")
    assert (stage.generation, stage.world, stage.live.resume) == (3, {"a": (0,)}, 5)


def test_when_nobody_has_the_state_the_trainers_are_started_again() -> None:
    stage = a_live_job("a", "b")
    stage.sees_gone("b")
    stage.parks("a", active=False)
    assert stage.job.record.assignment is not None
    assert stage.job.record.assignment.live is None
    assert stage.job.record.assignment.generation == 2


def test_a_trainer_that_fails_uses_up_the_budget_and_the_others_continue_without_a_pause() -> None:
    stage = a_live_job("a", "b")
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(failed(1, "ValueError: no"),))
    assert stage.phase is Phase.RESHAPING
    stage.parks("a")
    stage.tell("b", phase=WorkerPhase.PARKED)
    assert (stage.phase, stage.world) == (Phase.FORMING, {"a": (0,)})
    assert stage.job.record.failures == 1
    effects = stage.enters("a")
    assert invited(effects) == set()
    assert invited(stage.wait(1.1)) == {"b"}


def test_a_trainer_that_fails_once_too_often_fails_the_job() -> None:
    stage = a_live_stage(a_spec(workers=2, failures=0)).trains("a", "b")
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(failed(1, "ValueError: no"),))
    stage.parks("a")
    stage.tell("b", phase=WorkerPhase.PARKED)
    assert stage.phase is Phase.FAILED


def test_a_trainer_that_exits_because_it_lost_a_peer_is_no_failure_when_others_continue() -> None:
    stage = a_live_stage(a_spec(workers=2, failures=0)).trains("a", "b")
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(failed(1, peer_lost=True),))
    stage.parks("a")
    stage.tell("b", phase=WorkerPhase.PARKED)
    assert (stage.phase, stage.job.record.failures) == (Phase.FORMING, 0)


def test_too_few_survivors_wait_with_their_state_and_ask_others_in() -> None:
    stage = a_live_job("a", "b", at_least=2)
    stage.sees_gone("b")
    stage.parks("a")
    assert stage.phase is Phase.WAITING
    assert stage.job.why.startswith(texts.too_few_warm(1, 2))
    assert invited(stage.join("c")) == {"c"}
    assert len(assignments(stage.attaches("c"))) == 1
    assert (stage.live.entry, stage.live.previous, stage.live.resume) == (Entry.REPAIR, (0, -1), 5)
    stage.enters("a", "c")
    assert stage.job.record.formed == 2


def test_a_member_whose_trainer_failed_is_asked_to_bring_another_while_the_rest_wait() -> None:
    stage = a_live_job("a", "b", at_least=2)
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(failed(1, "ValueError: no"),))
    stage.parks("a")
    stage.tell("b", phase=WorkerPhase.PARKED)
    assert stage.phase is Phase.WAITING
    assert invited(stage.wait(1.1)) == {"b"}
    stage.attaches("b")
    assert stage.live.previous == (0, -1)


def test_when_the_last_survivor_is_lost_while_it_waits_the_rest_start_again() -> None:
    stage = a_live_job("a", "b", at_least=2)
    stage.sees_gone("b")
    stage.parks("a")
    stage.join("c", "d")
    stage.attaches("c")
    assert stage.phase is Phase.FORMING
    stage.sees_gone("a")
    stage.parks("c")
    stage.reports_status("d", WorkerPhase.IDLE)
    assert stage.job.record.assignment is not None
    assert (stage.job.record.assignment.live, stage.world) == (None, {"c": (0,), "d": (1,)})


def test_a_member_that_goes_after_its_last_step_is_no_loss() -> None:
    stage = a_live_job("a", "b")
    for worker in ("a", "b"):
        stage.tell(worker, *(structs.replace(trainer, finished=True) for trainer in stage.trainers[worker]))
    stage.sees_gone("b")
    assert (stage.phase, stage.job.record.losses) == (Phase.RUNNING, 0)
    stage.tell("a", phase=WorkerPhase.ENDED, exits=(clean(0),))
    assert stage.phase is Phase.SUCCEEDED


def test_what_the_trainers_can_prove_is_kept_and_told_with_the_end() -> None:
    stage = a_live_job("a", "b")
    proof = SampleCertificate(steps=300, samples=9_600, message="300 steps, 9,600 samples: 0 lost, 0 repeated")
    for worker in ("a", "b"):
        proven = (structs.replace(each, finished=True, certificate=proof) for each in stage.trainers[worker])
        stage.tell(worker, *proven)
    assert stage.job.storage.saved is not None and stage.job.storage.saved.certificate == proof
    stage.tell("a", phase=WorkerPhase.ENDED, exits=(clean(0),))
    [end] = reported(stage.tell("b", phase=WorkerPhase.ENDED, exits=(clean(1),)), "job_succeeded")
    assert end.why.startswith(texts.all_exited(2)) and end.why.endswith(proof.message)


def test_the_one_that_was_halted_after_the_last_step_may_end_in_peace() -> None:
    stage = a_live_job("a", "b")
    stage.tell("a", *(structs.replace(trainer, finished=True) for trainer in stage.trainers["a"]))
    stage.sign("b")
    stage.sees_gone("b")
    stage.parks("a")
    assert stage.job.why.startswith(texts.STEPS_DONE)
    stage.tell("a", phase=WorkerPhase.PARKED)
    assert stage.phase is Phase.SUCCEEDED


def test_the_one_that_does_not_know_yet_that_all_is_done_continues_alone_and_its_loss_starts_nothing_again() -> None:
    stage = a_live_job("a", "b")
    stage.tell("a", *(structs.replace(trainer, finished=True) for trainer in stage.trainers["a"]))
    stage.sign("b")
    stage.parks("a")
    assert (stage.world, stage.generation) == ({"b": (0,)}, 2)
    stage.sees_gone("b")
    assert stage.job.why.startswith(texts.STEPS_DONE)
    stage.tell("a", phase=WorkerPhase.PARKED)
    assert (stage.phase, stage.job.record.losses) == (Phase.SUCCEEDED, 0)


def test_people_are_told_why_and_from_which_step_the_world_continues() -> None:
    stage = a_live_job("a", "b")
    effects = stage.sees_gone("b")
    effects += stage.parks("a")
    assert reported(effects, "world_halted")[0].why == texts.lost(WorkerId("b"), "SIGKILL")
    decided = reported(effects, "world_decided")[0]
    assert "generation 2" in decided.text and "1 rank" in decided.text and "step 5" in decided.text
    assert (decided.fields["generation"], decided.fields["world_size"]) == (2, 1)
    assert (decided.fields["entry"], decided.fields["resume"]) == ("repair", 5)


def test_a_stopped_job_waits_until_its_trainers_have_ended() -> None:
    stage = a_live_job("a", "b")
    effects = stage.happens(events.StopAsked(stage.now_s, WHY, 90.0))
    assert [(halt.ends, halt.stop_grace_s) for halt in halts(effects)] == [(True, 90.0)]
    assert released(stage.parks("a", "b")) == set()
    assert stage.job.why.endswith(texts.waits_to_save([WorkerId("a"), WorkerId("b")], 90.0))
    stage.wait(60.0)
    assert stage.phase is Phase.RESHAPING and stage.job.gone == {}
    assert released(stage.ends("a")) == set()
    effects = stage.ends("b")
    assert (stage.phase, released(effects)) == (Phase.STOPPED, {"a", "b"})
    assert reported(effects, "job_stopped")[0].why == f"{WHY}; {checkpoint_text(None)}"


def test_the_checkpoint_that_was_written_for_a_stop_is_told_and_kept() -> None:
    stage = a_live_job("a", "b")
    older, newer = WrittenCheckpoint(4, "/old", 10.0), WrittenCheckpoint(7, "/new", 20.0)
    stage.writes("a", older)
    stage.happens(events.StopAsked(stage.now_s, WHY))
    stage.writes("a", newer)
    stage.writes("b", older)
    effects = stage.ends("a", "b")
    [end] = reported(effects, "job_stopped")
    assert end.why == f"{WHY}; {checkpoint_text(newer)}" and "step 7" in end.why and "/new" in end.why
    assert stage.job.record.checkpoint == newer


def test_what_is_known_of_a_plain_scripts_checkpoint_is_told_when_it_stops() -> None:
    stage = a_live_job("a", "b")
    stage.writes("a", WrittenCheckpoint(at=3723.0))
    stage.happens(events.StopAsked(stage.now_s, WHY))
    effects = stage.ends("a", "b")
    [end] = reported(effects, "job_stopped")
    assert end.why == f"{WHY}; {checkpoint_text(WrittenCheckpoint(at=3723.0))}" and "01:02:03 UTC" in end.why


def test_a_checkpoint_without_a_step_does_not_replace_one_with_a_step() -> None:
    stage = a_live_job("a", "b")
    known = WrittenCheckpoint(4, "/kept", 10.0)
    stage.writes("a", known)
    stage.writes("b", WrittenCheckpoint(at=20.0))
    assert stage.job.checkpoint == known


def test_a_stop_that_is_asked_for_again_may_only_hurry() -> None:
    stage = a_live_job("a", "b")
    stage.happens(events.StopAsked(stage.now_s, WHY, 90.0))
    assert [halt.stop_grace_s for halt in halts(stage.happens(events.StopAsked(stage.now_s, "again", 0.0)))] == [0.0]
    stage.happens(events.StopAsked(stage.now_s, "once more", 600.0))
    assert (stage.job.record.stop_why, stage.job.record.stop_grace_s) == (WHY, 0.0)


def test_a_stop_in_the_middle_of_a_repair_ends_those_that_have_parked() -> None:
    stage = a_live_job("a", "b", "c")
    stage.sees_gone("c")
    stage.parks("a")
    effects = stage.happens(events.StopAsked(stage.now_s, WHY))
    assert [(halt.generation, halt.ends) for halt in halts(effects)] == [(2, True)]
    stage.parks("b")
    parked = stage.phase
    stage.ends("a", "b")
    assert (parked, stage.phase) == (Phase.RESHAPING, Phase.STOPPED)


def test_trainers_that_do_not_end_are_waited_for_no_longer_than_their_grace_and_a_start() -> None:
    stage = a_live_job("a", "b")
    stage.happens(events.StopAsked(stage.now_s, WHY, 90.0))
    stage.ends("b")
    limit_s = 90.0 + stage.job.spec.timeouts.ready_s
    for _ in range(int(limit_s) + 5):
        stage.wait(1.0)
        if "a" in stage.job.workers:
            stage.is_seen_alive("a")
    assert stage.phase is Phase.STOPPED and texts.NOT_ENDED in stage.job.gone[WorkerId("a")]


def test_a_worker_that_takes_leave_is_not_waited_for() -> None:
    stage = a_live_job("a", "b")
    stage.tell("b", *stage.trainers["b"], phase=WorkerPhase.LEAVING)
    assert stage.phase is Phase.RESHAPING
    stage.happens(events.WorkerSaidLeft(stage.now_s, WorkerId("b"), "asked"))
    stage.parks("a")
    assert stage.world == {"a": (0,)}

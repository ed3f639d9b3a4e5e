from controlplane.job import events, texts
from controlplane.job.state import adopted_job
from messages.clusters import Presence, WorkerObservation
from messages.ids import Epoch, Generation, Rank, WorkerId
from messages.records import Phase
from messages.workers import TrainerExit, WorkerPhase
from messages.worlds import Release
from tests.job.stage import (
    JOB,
    LOCAL,
    Stage,
    a_spec,
    a_stage,
    assignments,
    clean,
    failed,
    halts,
    kept,
    published,
    released,
    reported,
)

WHY = "asked by ada"


def test_a_lost_worker_ends_the_world_and_the_rest_continue_in_a_smaller_one() -> None:
    stage = a_stage().runs("a", "b", "c")
    halt = halts(stage.sees_gone("b"))[0]
    assert (halt.generation, halt.why) == (2, texts.lost(WorkerId("b"), "SIGKILL"))
    stage.parked("a", "c")
    assert stage.world == {"a": (0,), "c": (1,)}
    assert stage.generation == 2
    assert stage.job.record.losses == 1


def test_ranks_that_fail_because_a_peer_was_lost_do_not_use_up_the_failure_budget() -> None:
    stage = a_stage(a_spec(failures=0)).runs("a", "b", "c")
    stage.exits("a", failed(0, peer_lost=True))
    stage.sees_gone("b")
    stage.parked("a", "c")
    assert stage.phase is Phase.FORMING
    assert stage.job.record.failures == 0


def test_a_round_waits_for_a_member_of_which_nothing_is_known_yet() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.exits("a", failed(0, peer_lost=True))
    stage.parked("a", "c")
    assert stage.phase is Phase.RESHAPING
    assert stage.job.why.endswith(texts.waits_to("park", [WorkerId("b")]))


def test_a_halt_is_repeated_until_everybody_parked() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.sees_gone("b")
    stage.parked("a")
    assert len(halts(stage.wait(1.0))) == 1
    stage.parked("c")
    assert halts(stage.wait(1.0)) == []


def test_a_script_that_fails_by_itself_is_started_again_after_a_growing_pause() -> None:
    stage = a_stage(a_spec(workers=1, failures=5)).runs("a")
    pauses = []
    for _ in range(4):
        stage.exits("a", failed(0, "ValueError: no"))
        stage.parked("a")
        assert stage.phase is Phase.WAITING
        retry_s = stage.job.pause.retry_s
        assert retry_s is not None
        pauses.append(retry_s - stage.now_s)
        stage.wait(pauses[-1] + 0.01)
        stage.ready("a")
    assert pauses == [1.0, 2.0, 3.0, 3.0]


def test_a_script_that_fails_too_often_fails_the_job_with_its_last_words() -> None:
    stage = a_stage(a_spec(workers=1, failures=0)).runs("a")
    stage.exits("a", failed(0, "Traceback", "ValueError: no"))
    effects = stage.parked("a")
    assert stage.phase is Phase.FAILED
    assert stage.job.record.failed_tail == ("Traceback", "ValueError: no")
    assert "ValueError: no" in reported(effects, "job_failed")[0].why
    assert released(effects) == {"a"}


def test_what_to_do_about_a_failure_is_told_with_it() -> None:
    stage = a_stage(a_spec(workers=1, failures=0)).runs("a")
    hint = "/usr/bin/python3 has no module 'lightning'. Choose an interpreter that has it: …"
    exit_ = TrainerExit(Rank(0), code=1, tail=("ModuleNotFoundError: No module named 'lightning'",), hint=hint)
    effects = [*stage.exits("a", exit_), *stage.parked("a")]
    assert reported(effects, "trainer_failed")[0].why.splitlines() == [*exit_.tail, hint]
    assert reported(effects, "job_failed")[0].why.splitlines()[1:] == [*exit_.tail, hint]


def test_the_cause_is_the_rank_that_failed_by_itself_not_the_ones_that_lost_their_peer() -> None:
    stage = a_stage(a_spec(workers=2, failures=0)).runs("a", "b")
    stage.exits("a", failed(0, "Connection closed by peer", peer_lost=True))
    stage.reports_status("b", WorkerPhase.ENDED, generation=1, exits=(failed(1, "ValueError: no"),))
    stage.parked("a", "b")
    assert stage.job.record.why == f"{texts.describe_exit(failed(1))}; {texts.failures_allowed(0)}"


def test_a_job_has_succeeded_when_every_rank_exited_with_0() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    assert released(stage.exits("a", clean(0))) == set()
    effects = stage.exits("b", clean(1))
    assert stage.phase is Phase.SUCCEEDED
    assert released(effects) == {"a", "b"}


def test_a_worker_that_goes_after_its_ranks_finished_is_no_loss() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    stage.exits("a", clean(0))
    stage.sees_gone("a")
    assert (stage.phase, stage.job.record.losses) == (Phase.RUNNING, 0)
    stage.exits("b", clean(1))
    assert stage.phase is Phase.SUCCEEDED


def test_when_a_job_ended_its_clusters_keep_nobody_and_nothing_is_left_to_do() -> None:
    stage = a_stage(a_spec(workers=1))
    stage.reports(keeps=1)
    stage.runs("a")
    assert kept(stage.exits("a", clean(0))) == [0]
    stage.sees_gone("a")
    effects = stage.reports(keeps=0)
    assert effects == []


def test_a_noticed_worker_is_left_out_of_the_next_world_and_then_released() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.happens(events.WorkerNoticeCame(stage.now_s, WorkerId("b"), 15.0, "signal"))
    assert stage.phase is Phase.RESHAPING
    stage.parked("a", "b", "c")
    assert stage.world == {"a": (0,), "c": (1,)}
    assert released(stage.ready("a", "c")) == {"b"}
    assert stage.job.record.failures == 0


def test_a_worker_with_an_hour_of_notice_is_handed_over_at_once_if_the_others_are_enough() -> None:
    stage = a_stage(a_spec(at_least=2)).runs("a", "b", "c")
    stage.happens(events.WorkerNoticeCame(stage.now_s, WorkerId("b"), 3585.0, "node"))
    assert stage.phase is Phase.RESHAPING


def test_a_worker_with_an_hour_of_notice_that_is_needed_trains_until_another_one_has_come() -> None:
    stage = a_stage(a_spec(workers=3, at_least=3)).runs("a", "b", "c")
    stage.happens(events.WorkerNoticeCame(stage.now_s, WorkerId("b"), 3585.0, "node"))
    stage.wait(600.0)
    assert stage.phase is Phase.RUNNING
    stage.join("d")
    stage.parked("a", "b", "c")
    assert set(stage.world) == {"a", "c", "d"}


def test_a_needed_worker_goes_a_minute_before_its_end_though_no_other_came() -> None:
    stage = a_stage(a_spec(workers=3, at_least=3)).runs("a", "b", "c")
    stage.happens(events.WorkerNoticeCame(stage.now_s, WorkerId("b"), 3585.0, "node"))
    assert halts(stage.wait(3524.0)) == []
    [halt] = halts(stage.wait(1.0))
    assert halt.why == texts.must_leave(WorkerId("b"), texts.noticed(3585.0, "node"))


def test_a_worker_that_joins_makes_the_world_larger() -> None:
    stage = a_stage(a_spec(workers=3, at_least=2)).runs("a", "b")
    assert halts(stage.join("c"))[0].why == "worker c joined"
    stage.parked("a", "b")
    assert stage.world == {"a": (0,), "b": (1,), "c": (2,)}


def test_a_worker_that_joins_while_a_round_is_open_goes_in_with_it() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.sees_gone("b")
    stage.parked("a")
    stage.join("d")
    assert assignments(stage.parked("c"))[0].world_size == 3


def test_a_spare_does_not_disturb_the_world() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    stage.join("c")
    assert stage.phase is Phase.RUNNING


def test_scaling_down_ends_the_surplus_and_keeps_the_rest() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.happens(events.ScaleAsked(stage.now_s, 2))
    stage.parked("a", "b", "c")
    assert stage.world == {"a": (0,), "b": (1,)}
    assert released(stage.ready("a", "b")) == {"c"}


def test_a_stopped_job_parks_first_and_then_lets_everybody_go() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    stage.happens(events.StopAsked(stage.now_s, WHY))
    assert stage.phase is Phase.RESHAPING
    effects = stage.parked("a", "b")
    assert (stage.phase, stage.job.record.why) == (Phase.STOPPED, WHY)
    assert released(effects) == {"a", "b"}


def test_a_second_loss_during_a_change_is_part_of_it() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.sees_gone("b")
    stage.parked("a")
    stage.sees_gone("c")
    assert stage.world == {"a": (0,)}
    assert stage.generation == 2


def test_a_loss_while_a_world_is_being_formed_makes_another_generation() -> None:
    stage = a_stage()
    stage.join("a", "b", "c")
    stage.ready("a")
    stage.sees_gone("b")
    stage.parked("a", "c")
    assert (stage.generation, stage.world) == (2, {"a": (0,), "c": (1,)})


def test_silence_counts_only_when_the_controller_says_so() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.reports(*stage.observations())
    stage.wait(60)
    assert stage.phase is Phase.RUNNING


def test_a_worker_that_the_controller_calls_silent_for_too_long_is_removed() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.now_s += 6
    stage.reports(*stage.observations(b=6.0))
    assert stage.phase is Phase.RESHAPING
    assert WorkerId("b") in stage.job.gone


def test_a_late_master_removes_nobody_until_it_has_been_on_time_for_a_moment() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.now_s += 6
    stage.happens(events.FellBehind(stage.now_s))
    stage.reports(*stage.observations(b=6.0))
    assert stage.phase is Phase.RUNNING
    stage.wait(0.6)
    assert WorkerId("b") in stage.job.gone


def test_a_master_that_is_always_late_judges_all_the_same() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.now_s += 6
    for _ in range(20):
        stage.now_s += 0.4
        stage.happens(events.FellBehind(stage.now_s))
        stage.reports(*stage.observations(b=6.0))
    assert WorkerId("b") in stage.job.gone


def test_silence_counts_though_the_controller_has_forgotten_the_last_words() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    stage.now_s += 6
    mute = WorkerObservation(WorkerId("b"), JOB, Presence.SILENT, silent_s=6.0)
    stage.reports(*(observation for observation in stage.observations() if observation.worker == "a"), mute)
    assert WorkerId("b") in stage.job.gone


def test_a_controller_that_starts_again_and_knows_nobody_makes_nobody_dead_at_once() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.reports(*stage.observations())
    stage.now_s += 30
    stage.reports(incarnation="b2")
    assert stage.phase is Phase.RUNNING
    stage.now_s += 6
    stage.reports(incarnation="b2")
    assert stage.job.gone.keys() == {"a", "b", "c"}


def test_a_dead_worker_that_speaks_again_is_told_to_go() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    stage.sees_gone("b", "silent for 6.0 s")
    effects = stage.reports_status("b", WorkerPhase.READY)
    assert WorkerId("b") not in stage.job.workers
    assert "b" in released(effects) | released(stage.parked("a"))


def test_a_worker_that_its_controller_calls_silent_is_silent_until_the_controller_hears_it() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    silent = WorkerObservation(WorkerId("b"), JOB, Presence.SILENT, silent_s=2.0, status=stage.statuses[WorkerId("b")])
    stage.reports(*(observation for observation in stage.observations() if observation.worker == "a"), silent)
    stage.reports_status("b", WorkerPhase.READY)
    assert stage.job.workers[WorkerId("b")].presence is Presence.SILENT
    stage.reports(*stage.observations())
    assert stage.job.workers[WorkerId("b")].presence is Presence.ALIVE


def test_changes_leave_the_other_workers_of_a_cluster_as_they_are() -> None:
    stage = a_stage().runs("a", "b", "c")
    stage.reports(*stage.observations())
    stage.now_s += 1
    stage.happens(events.ClusterReported(stage.now_s, LOCAL, "a1", keeps=3, forgotten=(WorkerId("b"),)))
    presences = {worker: each.presence for worker, each in stage.job.workers.items()}
    assert presences == {"a": Presence.ALIVE, "b": Presence.SILENT, "c": Presence.ALIVE}


def test_ranks_that_wait_for_a_peer_are_reported() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    effects = stage.happens(events.RanksWaited(stage.now_s, stage.generation, (Rank(0),), (Rank(1),)))
    waiting = texts.describe_waiting((Rank(0),), (Rank(1),))
    assert (reported(effects, "ranks_waiting")[0].text, stage.job.why) == (waiting, waiting)


def an_heir(stage: Stage) -> Stage:
    """Another master that reads KV and hears the same workers."""
    saved = stage.job.storage.saved
    assert saved is not None
    job = adopted_job(stage.job.spec, saved, epoch=Epoch(2), at_s=500.0)
    return Stage(job, now_s=500.0, seqs=stage.seqs, statuses=dict(stage.statuses))


def test_a_new_master_adopts_the_running_world_and_disturbs_nobody() -> None:
    stage = a_stage().runs("a", "b", "c")
    heir = an_heir(stage)
    heir.wait(0)
    effects = heir.reports(*heir.observations())
    effects += heir.ready("a", "b", "c")
    assert (halts(effects), assignments(effects)) == ([], [])
    assert (heir.phase, heir.generation) == (Phase.RUNNING, stage.generation)


def test_a_new_master_puts_out_a_member_that_died_while_nobody_listened() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    heir = an_heir(stage)
    del heir.statuses[WorkerId("b")]
    heir.reports(*heir.observations())
    heir.now_s += 6
    heir.reports(*heir.observations())
    heir.parked("a")
    assert heir.world == {"a": (0,)}


def test_a_new_master_makes_a_half_made_world_again_because_its_store_is_gone() -> None:
    stage = a_stage(a_spec(workers=2))
    stage.join("a", "b")
    assert stage.phase is Phase.FORMING
    heir = an_heir(stage)
    heir.wait(0)
    assert (heir.phase, heir.generation) == (Phase.RESHAPING, Generation(2))


def test_an_ended_job_stays_ended() -> None:
    stage = a_stage(a_spec(workers=1)).runs("a")
    stage.exits("a", clean(0))
    stage.happens(events.StopAsked(stage.now_s, "too late"))
    stage.happens(events.WorkerSaidLeft(stage.now_s, WorkerId("a"), "released"))
    assert stage.phase is Phase.SUCCEEDED


def test_the_end_of_a_large_job_names_nobody_but_releases_everybody() -> None:
    stage = a_stage(a_spec(workers=150))
    names = [f"w{number:03}" for number in range(150)]
    stage.runs(*names)
    stage.happens(events.StopAsked(stage.now_s, "asked", 0.0))
    effects = stage.parked(*names)
    [release] = published(effects, Release)
    assert (release.workers, release.everybody, release.is_last) == ((), True, True)

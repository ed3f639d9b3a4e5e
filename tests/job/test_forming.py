from msgspec import structs

from controlplane.job import events, texts
from controlplane.job.effects import SaveRecord, StartStore
from messages.clusters import Presence, WorkerObservation
from messages.ids import ClusterName, Generation, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from tests.job.stage import (
    JOB,
    LOCAL,
    NEWEST,
    a_spec,
    a_stage,
    an_observation,
    assignments,
    clean,
    halts,
    kept,
    reported,
)

WHY = "there is room for 1 worker"


def test_a_job_says_what_it_waits_for() -> None:
    stage = a_stage(a_spec(workers=4, at_least=3))
    stage.join("a", "b")
    assert stage.phase is Phase.WAITING
    assert stage.job.why == texts.too_few_ready(texts.workers_here(2), 3)


def test_workers_that_are_starting_are_told_apart_from_workers_that_are_ready() -> None:
    stage = a_stage(a_spec(workers=3))
    stage.reports(keeps=0)
    assert stage.job.why == texts.too_few_ready(texts.workers_here(), 1)
    stage.reports(*(an_observation(name, Presence.STARTING) for name in ("a", "b", "c")))
    assert stage.job.why == texts.too_few_ready(texts.workers_here(starting=3), 1)
    stage.reports_status("a", WorkerPhase.WARMING, generation=0)
    assert stage.job.why == texts.too_few_ready(texts.workers_here(importing=1, starting=2), 1)
    stage.reports_status("b", WorkerPhase.WARMING, generation=0)
    stage.reports_status("c", WorkerPhase.WARMING, generation=0)
    assert stage.job.why == texts.too_few_ready(texts.workers_here(importing=3), 1)


def test_the_number_of_workers_in_each_state_is_in_the_text() -> None:
    here = texts.workers_here(ready=11, importing=22, starting=33)
    assert [int(word) for word in here.split() if word.isdigit()] == [11, 22, 33]
    assert (
        len({texts.workers_here(1), texts.workers_here(0, 1), texts.workers_here(0, 0, 1), texts.workers_here()}) == 4
    )


def test_a_worker_that_is_slow_to_start_is_still_told_as_starting() -> None:
    stage = a_stage(a_spec(workers=2, at_least=2))
    stage.reports_status("a", WorkerPhase.WARMING, generation=0)
    stage.reports_status("b", WorkerPhase.IDLE, generation=0)
    stage.wait(21)
    assert stage.job.why == texts.too_few_ready(texts.workers_here(ready=1, importing=1), 2)


def test_one_worker_and_one_rank_are_told_as_one() -> None:
    stage = a_stage(a_spec(workers=1))
    stage.reports(keeps=0)
    assert stage.job.why == texts.too_few_ready(texts.workers_here(), 1)
    (decided,) = reported(stage.join("a"), "world_decided")
    assert (decided.fields["generation"], decided.fields["world_size"], decided.fields["workers"]) == (1, 1, 1)
    assert "1 rank" in decided.text and "1 ranks" not in decided.text
    assert decided.why == f"{texts.workers_are(1)} here: {texts.world_of(1)}" and "1 workers" not in decided.why
    stage.ready("a")
    stage.exits("a", clean(0))
    assert (stage.phase, stage.job.why) == (Phase.SUCCEEDED, texts.all_exited(1))


def test_the_cluster_is_told_how_many_workers_to_keep_until_its_topology_says_so() -> None:
    stage = a_stage(a_spec(workers=3))
    assert kept(stage.reports(keeps=0)) == [3]
    assert kept(stage.wait(0.5)) == []
    assert kept(stage.wait(0.6)) == [3]
    assert kept(stage.reports(keeps=3)) == []
    assert kept(stage.wait(5)) == []


def test_a_waiting_job_says_what_stands_in_its_way() -> None:
    stage = a_stage(a_spec(workers=2, at_least=2))
    stage.reports(keeps=0)
    effects = stage.happens(events.ClusterAnswered(stage.now_s, LOCAL, WHY))
    assert reported(effects, "cluster_refused")[0].why == WHY
    few = texts.too_few_ready(texts.workers_here(), 2)
    assert stage.job.why == f"{few}; {texts.refused_by(LOCAL, WHY)}"
    stage.happens(events.ClusterAnswered(stage.now_s, LOCAL, ""))
    stage.sees_gone("a", WHY)
    assert stage.job.why == f"{few}; {texts.last_lost(WHY)}"


def test_a_store_that_cannot_be_started_is_told_and_asked_for_again() -> None:
    stage = a_stage(a_spec(workers=1))
    stage.stores_start = False
    stage.join("a")
    failed = events.StoreFailed(stage.now_s, stage.generation, WHY)
    assert reported(stage.happens(failed), "store_not_started")[0].why == WHY
    assert stage.job.why.endswith(texts.store_failed(WHY))
    assert StartStore(stage.generation) not in stage.wait(0.5)
    assert StartStore(stage.generation) in stage.wait(0.6)


def test_workers_are_kept_where_the_allocator_says() -> None:
    stage = a_stage(a_spec(workers=4))
    stage.reports(keeps=4)
    effects = stage.happens(events.PlacementChanged(stage.now_s, NEWEST, {LOCAL: 3, ClusterName("far"): 1}))
    assert kept(effects) == [3]


def test_a_world_smaller_than_wanted_runs_and_says_what_keeps_it_from_more() -> None:
    stage = a_stage(a_spec(workers=3, at_least=1)).runs("a")
    stage.happens(events.PlacementChanged(stage.now_s, NEWEST, {LOCAL: 1}, WHY))
    assert (stage.phase, stage.job.why) == (Phase.RUNNING, f"{texts.world_of(1)}; {WHY}")


def test_the_first_world_waits_for_workers_that_are_known_to_come() -> None:
    stage = a_stage(a_spec(workers=3, at_least=1))
    stage.reports(*(an_observation(name, Presence.STARTING) for name in ("a", "b", "c")))
    stage.reports_status("c", WorkerPhase.IDLE, generation=0)
    assert stage.phase is Phase.WAITING
    assert stage.job.why == texts.more_wanted(texts.workers_here(ready=1, starting=2), 3)


def test_the_first_world_does_not_wait_for_ever_for_workers_that_do_not_come() -> None:
    stage = a_stage(a_spec(workers=3, at_least=1))
    stage.reports(an_observation("a-0000", Presence.STARTING))
    stage.reports_status("c", WorkerPhase.IDLE, generation=0)
    assert stage.phase is Phase.WAITING
    stage.wait(21)
    assert stage.world == {"c": (0,)}


def test_a_world_is_decided_once_the_wanted_workers_are_here() -> None:
    stage = a_stage(a_spec(workers=2))
    stage.reports(keeps=2)
    effects = stage.join("b", "a")
    world = assignments(effects)[0]
    assert stage.phase is Phase.FORMING
    assert (world.generation, world.world_size, stage.world) == (1, 2, {"a": (0,), "b": (1,)})
    assert world.store.port == 29401


def test_nothing_is_published_before_its_record_is_saved() -> None:
    stage = a_stage(a_spec(workers=1))
    stage.save_at_once = False
    effects = stage.join("a")
    assert (stage.phase, assignments(effects)) == (Phase.FORMING, [])
    for effect in effects:
        if isinstance(effect, SaveRecord):
            stage.happens(events.RecordSaved(stage.now_s, effect.record))
    stage.happens(events.RecordSaved(stage.now_s, stage.job.record))
    assert assignments(stage.effects) == [stage.job.record.assignment]


def test_a_save_that_failed_is_tried_again_and_holds_the_world_back() -> None:
    stage = a_stage(a_spec(workers=1))
    stage.save_at_once = False
    stage.join("a")
    stage.happens(events.SaveFailed(stage.now_s, "the bus is away"))
    assert not [e for e in stage.wait(0.1) if isinstance(e, SaveRecord)]
    assert [e for e in stage.wait(0.5) if isinstance(e, SaveRecord)]
    assert assignments(stage.effects) == []


def test_a_world_runs_when_all_its_members_are_ready() -> None:
    stage = a_stage(a_spec(workers=2))
    stage.join("a", "b")
    stage.ready("a")
    assert stage.job.why == texts.waits_to("start", [WorkerId("b")])
    stage.ready("b")
    assert stage.phase is Phase.RUNNING


def test_an_assignment_is_repeated_until_every_member_obeys_it() -> None:
    stage = a_stage(a_spec(workers=2))
    stage.join("a", "b")
    stage.ready("a")
    assert len(assignments(stage.wait(1.0))) == 1
    stage.ready("b")
    assert assignments(stage.wait(1.0)) == []


def test_a_member_that_never_gets_ready_is_removed_and_the_others_continue() -> None:
    stage = a_stage(a_spec(workers=2))
    stage.join("a", "b")
    stage.ready("a")
    stage.wait(22.1)
    assert stage.phase is Phase.RESHAPING
    stage.parked("a")
    assert stage.world == {"a": (0,)}
    assert stage.job.gone[WorkerId("b")].startswith(texts.NOT_STARTED)


def test_ranks_of_one_worker_stay_together_and_replicas_stay_whole() -> None:
    stage = a_stage(a_spec(workers=3, ranks=2, replica=4))
    stage.join("a", "b", "c")
    assert stage.world == {"a": (0, 1), "b": (2, 3)}


def test_hyperparameters_travel_with_the_world_and_the_global_batch_does_not_depend_on_it() -> None:
    stage = a_stage(a_spec(workers=3, hyperparameters={"global_batch": 10, "learning_rate": 1, "optimizer": "adam"}))
    world = assignments(stage.join("a", "b", "c"))[0]
    assert world.hyperparameters.shares == (4, 3, 3)
    assert world.hyperparameters.global_batch == 10
    assert world.hyperparameters.learning_rate == 1.0
    assert world.hyperparameters.given == {"optimizer": "adam"}


def test_a_store_that_is_lost_before_the_ranks_met_makes_another_generation() -> None:
    stage = a_stage(a_spec(workers=1))
    stage.join("a")
    generation = stage.generation
    stage.happens(events.StoreLost(stage.now_s))
    stage.parked("a")
    assert (stage.phase, stage.generation) == (Phase.FORMING, generation + 1)


def test_a_word_of_an_older_store_changes_nothing() -> None:
    stage = a_stage(a_spec(workers=1)).runs("a")
    before = stage.job
    stage.happens(events.StoreFailed(stage.now_s, Generation(0), "late"))
    assert stage.job == before


def test_a_late_word_of_a_worker_teaches_nothing() -> None:
    stage = a_stage(a_spec(workers=1)).runs("a")
    stage.reports_status("a", WorkerPhase.IDLE, generation=0, seq=1)
    assert stage.phase is Phase.RUNNING
    assert stage.job.workers[WorkerId("a")].phase is WorkerPhase.READY


def test_no_halt_is_needed_before_the_first_world() -> None:
    stage = a_stage(a_spec(workers=1))
    assert halts(stage.join("a")) == []


def test_the_zone_that_only_the_controller_knows_is_kept() -> None:
    stage = a_stage()
    stage.join("a")
    known = structs.replace(stage.statuses[WorkerId("a")], zone="us-central1-a")
    stage.reports(WorkerObservation(WorkerId("a"), JOB, Presence.ALIVE, status=known))
    stage.reports_status("a", WorkerPhase.IDLE)
    assert stage.job.workers[WorkerId("a")].zone == "us-central1-a"

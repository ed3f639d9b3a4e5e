"""What each event changes in a job, at the limits of its rule."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.job import events
from controlplane.job.commands import NAMED_AT_MOST
from controlplane.job.doubts import known_generation, note_doubt
from controlplane.job.effects import TellCluster
from controlplane.job.forgetting import CLUSTER_FORGOTTEN_S, has_anything_in, is_long_silent
from controlplane.job.learn import JUDGES_AGAIN_S, SAVE_RETRY_S, STORE_RETRY_S, learn
from controlplane.job.learn_exits import learn_ends, learn_exits, learn_fallen, learn_joining
from controlplane.job.learn_workers import HEARD_AGAIN_S, hear_worker, tombstone_all
from controlplane.job.overdue import (
    patience_s,
)
from controlplane.job.scaling import RefusedSize, refuse_size
from controlplane.job.scripts import next_start, note_progress
from controlplane.job.sharing import DOUBLINGS_AT_MOST, heard_again, judge_shares, share_patience_s
from controlplane.job.state import Cluster, Failure, Job, Start, Unfit
from controlplane.job.stopping import ask_to_stop, default_grace_s, grace_s, note_checkpoint
from controlplane.job.workers import Worker, Workers
from messages.clusters import KeepWorkers, Presence, WorkerObservation
from messages.criteria import WhenSpent
from messages.ids import ClusterName, Generation, Rank, WorkerId
from messages.jobs import Workers as Sizes
from messages.records import Phase
from messages.workers import Fallen, TrainerExit, TrainerStatus, WorkerPhase, WorkerStatus, WrittenCheckpoint
from tests.job.built import (
    CUT,
    OTHER,
    A,
    B,
    C,
    a_running_job,
    a_training_job,
    fresh,
    halted,
    recorded,
    with_clusters,
    with_round,
    with_trainer,
    with_worker,
)
from tests.job.stage import JOB, LOCAL, a_spec, a_stage, a_status, clean, failed


def test_a_new_record_of_workers_has_the_indexes_of_its_workers_after_any_changes() -> None:
    chance, table = random.Random(5), Workers()
    for _ in range(300):
        name = WorkerId(chance.choice("abcd"))
        if chance.random() < 0.25:
            table.drop(name)
        else:
            trainers = tuple(
                TrainerStatus(local, finished=chance.random() < 0.3, overdue=chance.random() < 0.3)
                for local in range(chance.randrange(3))
            )
            presence = chance.choice([Presence.ALIVE, Presence.SILENT])
            noticed = chance.choice([None, "spot"])
            exits = chance.choice([(), (CUT,)])
            table.put(Worker(name, LOCAL, 0.0, 0.0, presence, exits=exits, noticed=noticed, trainers=trainers))
        if chance.random() < 0.2:
            table = table.own_copy()
            assert table.changed == set()
        everybody = table.values()
        assert table.live == sum(bool(worker.trainers) for worker in everybody)
        assert table.silent == {worker.worker for worker in everybody if worker.presence is Presence.SILENT}
        assert table.noticed == {worker.worker for worker in everybody if worker.noticed}
        assert table.exited == {worker.worker for worker in everybody if worker.exits}
        for index, field in ((table.finished, "finished"), (table.overdue, "overdue")):
            assert index == {w.worker for w in everybody if any(getattr(each, field) for each in w.trainers)}


@pytest.mark.parametrize("usd", [0.5, 5.0])
def test_a_raised_budget_is_the_highest_that_was_set(usd: float) -> None:
    job = recorded(a_running_job(), budget_reached=True)
    raised = learn(job, events.BudgetRaised(200.0, usd))
    assert (raised.record.max_usd_total, raised.record.budget_reached) == (usd, False)
    assert learn(raised, events.BudgetRaised(200.0, usd / 2)).record.max_usd_total == usd


@pytest.mark.parametrize("action", list(WhenSpent))
def test_a_spent_budget_is_recorded_with_its_action_and_grace(action: WhenSpent) -> None:
    job = a_running_job()
    event = events.BudgetReached(200.0, action, "spent", job.record, 40.0)
    spent = learn(job, event).record
    paused, spot, stop = (action is each for each in (WhenSpent.PAUSE, WhenSpent.ON_DEMAND_OFF, WhenSpent.STOP))
    assert spent.paused == ("spent" if paused else None) and spent.spot_only == ("spent" if spot else None)
    assert spent.stop_why == ("budget spent: spent" if stop else None)
    assert spent.stop_grace_s == (None if spot else 40.0)
    assert spent.budget_reached is not stop
    hurried = learn(recorded(job, stop_grace_s=3.0), event).record
    assert hurried.stop_grace_s == 3.0
    smaller = recorded(job, wanted=2)
    richer = recorded(job, max_usd_total=1.0)
    ended = recorded(job, phase=Phase.STOPPED)
    assert all(learn(each, event).record == each.record for each in (smaller, richer, ended))
    same = recorded(job, max_usd_total=0.0)
    assert learn(same, event).record != same.record


def test_a_job_that_may_spend_again_continues_and_one_that_stops_keeps_its_grace() -> None:
    job = recorded(a_running_job(), paused="spent", stop_grace_s=4.0, spot_only="spent")
    freed = learn(job, events.BudgetFreed(200.0, WhenSpent.PAUSE))
    assert (freed.record.paused, freed.record.stop_grace_s, freed.record.spot_only) == (None, None, "spent")
    assert (freed.pause.waiting_since_s, freed.pause.starts_again) == (200.0, False)
    stops = learn(recorded(job, stop_why="asked"), events.BudgetFreed(200.0, WhenSpent.PAUSE))
    assert stops.record.stop_grace_s == 4.0
    rests = recorded(job, phase=Phase.WAITING)
    assert learn(rests, events.BudgetFreed(200.0, WhenSpent.PAUSE)).pause.starts_again
    allowed = learn(job, events.BudgetFreed(200.0, WhenSpent.ON_DEMAND_OFF))
    assert (allowed.record.spot_only, allowed.record.paused) == (None, "spent")
    open_job = a_running_job()
    assert learn(open_job, events.BudgetFreed(200.0, WhenSpent.PAUSE)) is open_job


def test_a_late_master_waits_with_its_judgement_but_not_for_longer_than_a_worker_may_be_silent() -> None:
    job = a_running_job()
    late = learn(job, events.FellBehind(200.0))
    assert (late.late_since_s, late.judges_from_s) == (200.0, 200.0 + JUDGES_AGAIN_S)
    in_series_s = 200.0 + 2 * JUDGES_AGAIN_S
    assert learn(late, events.FellBehind(in_series_s)).late_since_s == 200.0
    assert learn(late, events.FellBehind(in_series_s + 0.1)).late_since_s == in_series_s + 0.1
    for for_s, waits in ((5.0, True), (5.1, False)):
        series = replace(late, judges_from_s=200.0 + for_s)
        assert (learn(series, events.FellBehind(200.0 + for_s)).judges_from_s > 200.0 + for_s) is waits


def test_a_failed_store_or_save_is_tried_again_later() -> None:
    job = a_running_job()
    generation = job.store.generation
    failed_store = learn(job, events.StoreFailed(200.0, generation, "no port")).store
    assert (failed_store.retry_s, failed_store.error) == (200.0 + STORE_RETRY_S, "no port")
    assert failed_store.address is None and failed_store.generation == generation
    assert learn(job, events.StoreFailed(200.0, Generation(generation + 1), "no port")) is job
    saving = replace(job, storage=replace(job.storage, saving=job.record))
    storage = learn(saving, events.SaveFailed(200.0, "down")).storage
    assert (storage.saving, storage.retry_s) == (None, 200.0 + SAVE_RETRY_S)
    lost = learn(job, events.StoreLost(200.0))
    assert (lost.store.generation, lost.store.address, lost.round.store_lost) == (0, None, True)


def test_a_late_answer_of_a_store_or_of_ranks_teaches_nothing() -> None:
    job = a_running_job()
    older = Generation(job.record.generation - 1)
    assert learn(job, events.RanksWaited(200.0, older, (Rank(0),), (Rank(1),))) is job
    assert learn(job, events.RanksMet(200.0, older)) is job
    assert (
        "rank 0"
        in learn(job, events.RanksWaited(200.0, job.record.generation, (Rank(0),), (Rank(1),))).round.ranks_waiting
    )


@pytest.mark.parametrize("named", [NAMED_AT_MOST - 1, NAMED_AT_MOST])
def test_doubtful_messages_are_counted_and_a_hundred_workers_are_named(named: int) -> None:
    job = a_running_job()
    by_worker = {WorkerId(f"w{number}"): "it lies" for number in range(named)}
    job = replace(job, doubtful=replace(job.doubtful, count=named, by_worker=by_worker))
    after = note_doubt(job, A, "it lies too").doubtful
    assert (after.count, len(after.by_worker)) == (named + 1, NAMED_AT_MOST)
    again = note_doubt(replace(job, doubtful=after), WorkerId("w0"), "another").doubtful
    assert (again.count, again.by_worker[WorkerId("w0")]) == (named + 2, "it lies")


def test_the_known_generation_is_that_of_the_prepared_world() -> None:
    job = a_running_job()
    assert known_generation(job) == 1
    assert job.record.assignment is not None
    assert known_generation(recorded(job, prepared=replace(job.record.assignment, generation=Generation(4)))) == 4


def test_a_cluster_is_forgotten_after_an_hour_if_nothing_is_in_it() -> None:
    assert not is_long_silent(0.0, CLUSTER_FORGOTTEN_S) and is_long_silent(0.0, CLUSTER_FORGOTTEN_S + 0.1)
    job = with_clusters(a_running_job(), other=Cluster("b", 0.0, keeps=1), third=Cluster("c", 0.0, keeps=0))
    found = [has_anything_in(job, ClusterName(name)) for name in ("local", "other", "third", "unknown")]
    assert found == [True, True, False, False]
    assert has_anything_in(with_worker(job, B, cluster=ClusterName("third")), ClusterName("third"))


def test_the_newest_sign_of_life_counts_in_each_kind_of_report() -> None:
    job = a_running_job("a", "b")
    for heard_s, at_s in ((150.0, 150.0), (90.0, 100.0)):
        old = hear_worker(
            fresh(job), a_status("a", WorkerPhase.READY, seq=1), 150.0, heard_s=heard_s, presence=Presence.ALIVE
        )
        assert old.workers[A].heard_s == max(at_s, heard_s)
        newer = a_status("a", WorkerPhase.READY, seq=9, generation=1)
        heard = hear_worker(fresh(job), newer, 150.0, heard_s=heard_s, presence=Presence.ALIVE)
        assert heard.workers[A].heard_s == max(at_s, heard_s)


def test_a_step_is_kept_while_a_worker_names_none_and_the_first_ends_the_start() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    stage.now_s = 107.0
    stage.reports_status("a", WorkerPhase.READY)
    assert (stage.job.script.start.has_step, stage.job.script.start.up_s) == (False, 100.0)
    stage.reports_status("a", WorkerPhase.READY, step=0)
    start = stage.job.script.start
    assert (start.has_step, start.up_s, start.cost_s) == (True, 107.0, 7.0)
    stage.now_s = 109.0
    stage.reports_status("a", WorkerPhase.READY)
    stage.reports_status("b", WorkerPhase.READY, step=4)
    assert stage.job.script.start == start and stage.job.workers[A].step == 0


def test_the_cost_of_a_start_is_parking_and_starting() -> None:
    job = with_round(a_running_job(), assigned_s=100.0)
    job = replace(job, script=replace(job.script, start=Start(parking_s=4.0, cost_before_s=9.0)))
    noted = note_progress(job, 106.0).script.start
    assert (noted.up_s, noted.cost_s, noted.has_step) == (106.0, 10.0, False)
    assert note_progress(with_round(job, assigned_s=None), 106.0).script.start.cost_s == 4.0
    assert next_start(job) == Start(parking_s=4.0, cost_before_s=9.0)
    assert next_start(note_progress(job, 106.0)) == Start(parking_s=4.0, cost_before_s=10.0)


def test_a_lost_record_learns_the_time_of_submission_from_a_worker() -> None:
    job = replace(a_running_job(), is_submission_known=False, submitted_s=500.0)
    status = replace(a_status("a", WorkerPhase.READY, seq=9), submitted_at=40.0)
    job = recorded(job, submitted_at=100.0)
    learned = hear_worker(job, status, 600.0, heard_s=600.0, presence=Presence.ALIVE)
    assert (learned.is_submission_known, learned.submitted_s, learned.record.submitted_at) == (True, 440.0, 40.0)


def test_a_worker_that_can_train_shows_that_the_image_fits() -> None:
    job = replace(a_running_job(), failures=replace(a_running_job().failures, unfit=Unfit(2, "no GPU")))
    for phase, unfit in ((WorkerPhase.WARMING, 2), (WorkerPhase.LEAVING, 2), (WorkerPhase.IDLE, 0)):
        status = a_status("a", phase, seq=9)
        heard = hear_worker(fresh(job), status, 100.0, heard_s=100.0, presence=Presence.ALIVE)
        assert heard.failures.unfit.workers == unfit


@pytest.mark.parametrize(
    ("changes", "losses"),
    [({}, 1), ({"phase": Phase.STOPPED}, 0), ({"phase": Phase.WAITING, "paused": "spent"}, 0)],
)
def test_a_worker_counts_as_lost_if_the_job_still_needed_it(changes: dict[str, Any], losses: int) -> None:
    job = recorded(a_running_job(), **changes)
    assert tombstone_all(fresh(job), {A: "SIGKILL"}).record.losses == losses
    assert tombstone_all(fresh(job), {WorkerId("x"): "SIGKILL"}).record.losses == 0
    released = replace(job, contacts=replace(job.contacts, released_s={A: 1.0, B: 2.0}))
    after = tombstone_all(fresh(released), {A: "left"})
    assert (after.record.losses, after.contacts.released_s) == (0, {B: 2.0})
    ended = with_round(job, clean=frozenset({Rank(0)}))
    assert tombstone_all(ended, {A: "left"}).record.losses == 0
    assert tombstone_all(after, {A: "again"}) is after


@pytest.mark.parametrize(
    ("known", "came", "cause"),
    [
        (None, (CUT,), CUT),
        (None, (CUT, failed(0)), failed(0)),
        (None, (failed(0), failed(0, "x")), failed(0)),
        (CUT, (failed(0),), failed(0)),
        (CUT, (replace(CUT, code=2),), CUT),
        (failed(0), (CUT, failed(0, "x")), failed(0)),
        (None, (clean(0),), None),
        (None, (failed(1),), None),
    ],
)
def test_the_cause_is_the_first_rank_that_failed_by_itself(
    known: TrainerExit | None, came: tuple[TrainerExit, ...], cause: TrainerExit | None
) -> None:
    job = with_round(a_running_job(), failure=Failure(B, known) if known is not None else None)
    failure = learn_exits(job, replace(job.workers[A], exits=came)).round.failure
    assert (failure.exit if failure is not None else None) == cause


def test_ranks_that_detach_after_their_last_step_are_clean_while_the_world_changes() -> None:
    job = with_trainer(a_training_job("a", "b", ranks=2), B, 0, finished=True)
    known = job.workers[B]
    heard = replace(known, trainers=known.trainers[1:])
    assert learn_ends(job, known, heard) is job
    assert learn_ends(halted(job), known, heard).round.clean == {2}
    assert learn_ends(recorded(job, prepared=job.record.assignment), known, heard).round.clean == {2}
    both = with_trainer(with_trainer(job, B, 1, finished=True), B, 0, finished=True).workers[B]
    assert learn_ends(halted(job), both, replace(known, trainers=())).round.clean == {2, 3}
    extra = replace(both, trainers=(*both.trainers, TrainerStatus(2, finished=True)))
    assert learn_ends(halted(job), extra, replace(known, trainers=())).round.clean == {2, 3}
    assert learn_ends(halted(job), known, known).round.clean == frozenset()
    outsider = replace(known, worker=WorkerId("x"))
    assert learn_ends(halted(job), outsider, replace(outsider, trainers=())).round.clean == frozenset()


def test_a_trainer_that_falls_after_the_halt_is_a_failure_of_its_rank() -> None:
    job = halted(a_training_job("a", "b", ranks=2))
    exits = {(2, 1): 3, (2, 2): None, (1, 0): None}
    for (generation, local), rank in exits.items():
        fallen = (Fallen(Generation(generation), local, failed(0)),)
        failure = learn_fallen(job, replace(job.workers[B], fallen=fallen)).round.failure
        assert (failure.exit.rank if failure is not None else None) == rank
    quits = (Fallen(Generation(2), 0, replace(clean(0), early=True)),)
    learned = learn_fallen(job, replace(job.workers[B], fallen=quits))
    assert learned.round.failure is None
    assert learned.round.quit is not None and learned.round.quit.exit.rank == 2


def test_a_stop_takes_the_first_reason_and_the_shortest_grace_and_is_published_again() -> None:
    job = with_round(a_running_job(), published_s=100.0)
    asked = ask_to_stop(job, "first", 9.0)
    assert (asked.record.stop_why, asked.record.stop_grace_s, asked.round.published_s) == ("first", 9.0, None)
    again = ask_to_stop(with_round(asked, published_s=100.0), "second", 20.0)
    assert (again.record, again.round.published_s) == (asked.record, 100.0)
    assert ask_to_stop(asked, "third", 2.0).record.stop_grace_s == 2.0
    assert ask_to_stop(job, "first", None).record.stop_grace_s is None
    ended = recorded(job, phase=Phase.FAILED)
    assert ask_to_stop(ended, "first", 9.0) is ended


@pytest.mark.parametrize(
    ("step_s", "stop_grace_s", "grace"),
    [(1.0, 2.0, 30.0), (15.0, 2.0, 30.0), (16.0, 2.0, 32.0), (1.0, 31.0, 31.0), (43_201.0, 2.0, 86_400.0)],
)
def test_the_usual_grace_of_a_stop_is_enough_for_two_steps(step_s: float, stop_grace_s: float, grace: float) -> None:
    job = a_running_job()
    timeouts = replace(job.spec.timeouts, stop_grace_s=stop_grace_s)
    job = replace(job, spec=replace(job.spec, timeouts=timeouts))
    assert default_grace_s(job, step_s) == grace
    assert grace_s(job) == stop_grace_s
    assert grace_s(recorded(job, paused="spent")) == max(30.0, stop_grace_s)
    assert grace_s(recorded(job, stop_why="asked", stop_grace_s=1.0)) == 1.0


def test_the_newest_checkpoint_is_kept_and_one_with_a_step_is_preferred() -> None:
    job = a_running_job()
    stepped, later, plain = WrittenCheckpoint(7, "/x", 5.0), WrittenCheckpoint(3, "/x", 6.0), WrittenCheckpoint(at=9.0)
    known = note_checkpoint(job, stepped)
    assert known.checkpoint == stepped and note_checkpoint(job, None) is job
    assert note_checkpoint(known, later).checkpoint == later
    assert note_checkpoint(known, replace(later, at=5.0)).checkpoint == stepped
    assert note_checkpoint(known, plain).checkpoint == stepped
    assert note_checkpoint(note_checkpoint(job, plain), replace(plain, at=10.0)).checkpoint == replace(plain, at=10.0)
    assert note_checkpoint(note_checkpoint(job, plain), replace(stepped, at=10.0)).checkpoint == replace(
        stepped, at=10.0
    )


@pytest.mark.parametrize(
    ("limits", "size", "instead"),
    [
        (Sizes(max=4, min=2), 1, 2),
        (Sizes(max=4, min=2), 2, None),
        (Sizes(max=4, min=2), 4, None),
        (Sizes(max=4, min=2), 5, 4),
        (Sizes(max=8, min=1, allowed=(2, 4, 8)), 7, 4),
        (Sizes(max=8, min=1, allowed=(2, 4, 8)), 4, None),
        (Sizes(max=8, min=1, allowed=(2, 4, 8)), 1, 2),
    ],
)
def test_a_refused_size_names_the_nearest_that_is_possible(limits: Sizes, size: int, instead: int | None) -> None:
    refused = refuse_size(limits, size)
    assert (refused.instead if isinstance(refused, RefusedSize) else None) == instead


@pytest.mark.parametrize("rounds", [0, 1, DOUBLINGS_AT_MOST, DOUBLINGS_AT_MOST + 1])
def test_the_patience_with_a_share_doubles_three_times_at_most(rounds: int) -> None:
    job = replace(a_running_job(), share_rounds=rounds)
    assert share_patience_s(job) == patience_s(job) * 2 ** min(rounds, 3)


def in_two_clusters(wanted: int = 2, **other: Any) -> Job:
    """All workers are in the first of two clusters; the second wants its share."""
    job = recorded(a_running_job("a", "b"), wanted=wanted)
    clusters = {LOCAL: Cluster("a1", 100.0, 2), OTHER: Cluster("b1", 100.0, 1, **other)}
    return replace(job, clusters=clusters, gathers_until_s=None)


def test_a_cluster_that_misses_its_share_is_capped_when_its_time_is_over() -> None:
    job = judge_shares(in_two_clusters(wanted=4), 101.0)
    other = job.clusters[OTHER]
    assert (other.behind_s, other.had_warm, other.cap) == (101.0, 0, None)
    patient_s = 101.0 + share_patience_s(job)
    heard = {name: replace(each, heard_s=patient_s) for name, each in job.clusters.items()}
    assert judge_shares(replace(job, clusters=heard), patient_s).clusters[OTHER].cap is None
    capped = judge_shares(replace(job, clusters=heard), patient_s + 0.1).clusters[OTHER]
    assert (capped.cap, capped.behind_s) == (0, None)


def test_no_time_counts_while_no_cluster_is_heard_and_a_full_share_ends_it() -> None:
    behind = in_two_clusters(wanted=4, behind_s=101.0)
    unheard = judge_shares(behind, 200.0)
    assert [each.behind_s for each in unheard.clusters.values()] == [None, None]
    full = judge_shares(in_two_clusters(wanted=2, behind_s=90.0), 101.0)
    assert full.clusters[OTHER].behind_s is None and full.clusters[OTHER].cap is None
    once = replace(in_two_clusters(wanted=2), share_rounds=1)
    assert judge_shares(once, 101.0).share_rounds == 0


@pytest.mark.parametrize(("silent_s", "is_back"), [(2.5, False), (2.6, True)])
def test_a_cluster_that_was_silent_has_no_cap_any_more(silent_s: float, is_back: bool) -> None:
    cluster = heard_again(Cluster("a1", 100.0, 2, behind_s=99.0, cap=1), 100.0 + silent_s)
    assert (cluster.cap, cluster.behind_s) == ((None, None) if is_back else (1, 99.0))


@pytest.mark.parametrize(("workers", "divides"), [(1, False), (2, True)])
def test_gpus_are_divided_if_the_job_may_have_several_workers(workers: int, divides: bool) -> None:
    effects = a_stage(a_spec(workers=workers)).reports(keeps=0)
    [keep] = [e.command for e in effects if isinstance(e, TellCluster) and isinstance(e.command, KeepWorkers)]
    assert (keep.count, keep.template.divide_gpus, keep.template.slots) == (workers, divides, 1)


# What reports of clusters say of workers


def reported(job: Job, *observations: WorkerObservation, at_s: float = 150.0, **changes: Any) -> Job:
    return learn(fresh(job), events.ClusterReported(at_s, LOCAL, "a1", observations=observations, **changes))


def an_observation_of(worker: WorkerId, presence: Presence, silent_s: float = 0.0) -> WorkerObservation:
    return WorkerObservation(worker, JOB, presence, silent_s=silent_s)


@pytest.mark.parametrize(("silent_s", "heard_s"), [(10.0, 140.0), (50.0, 100.0), (60.0, 100.0)])
def test_a_silent_worker_was_heard_when_its_controller_heard_it(silent_s: float, heard_s: float) -> None:
    job = a_running_job()
    silent = reported(job, an_observation_of(A, Presence.SILENT, silent_s)).workers[A]
    assert (silent.presence, silent.heard_s) == (Presence.SILENT, heard_s)
    alive = reported(job, an_observation_of(A, Presence.ALIVE, silent_s)).workers[A]
    assert alive == job.workers[A]


def test_a_worker_that_its_controller_starts_is_known_and_a_dead_one_is_not_revived() -> None:
    job = a_running_job("a", "b")
    started = reported(job, an_observation_of(C, Presence.STARTING)).workers[C]
    assert (started.presence, started.seq) == (Presence.STARTING, -1)
    assert started.first_seen_s == started.heard_s == 150.0
    dead = replace(job, gone={C: "SIGKILL"})
    assert C not in reported(dead, an_observation_of(C, Presence.STARTING)).workers


def test_a_whole_report_forgets_those_that_never_spoke_and_marks_the_others_silent() -> None:
    job = with_worker(a_running_job("a", "b"), C, presence=Presence.STARTING)
    job = with_worker(job, WorkerId("far"), cluster=OTHER)
    whole = reported(job, an_observation_of(A, Presence.ALIVE), is_whole=True).workers
    assert [*whole] == ["a", "b", "far"]
    assert [each.presence for each in whole.values()] == [Presence.ALIVE, Presence.SILENT, Presence.ALIVE]
    named = reported(job, forgotten=(B, C, WorkerId("x"))).workers
    assert [*named] == ["a", "b", "far"] and named[B].presence is Presence.SILENT
    assert reported(job).workers == job.workers


def test_a_new_controller_has_heard_nobody_yet() -> None:
    job = with_worker(a_running_job("a", "b"), B, cluster=OTHER)
    job = with_clusters(job, local=Cluster("a0", 100.0, 2), other=Cluster("b", 100.0, 0))
    after = reported(job, keeps=3, step=8)
    assert [each.heard_s for each in after.workers.values()] == [150.0, 100.0]
    assert after.clusters[LOCAL] == Cluster("a1", 150.0, 3, step=8)


def test_an_old_message_adds_the_node_and_zone_that_the_worker_did_not_know() -> None:
    status = replace(a_status("a", WorkerPhase.READY, seq=1), node="n1", zone="z1")
    job = a_running_job()
    learned = hear_worker(job, status, 150.0, heard_s=150.0, presence=Presence.SILENT).workers[A]
    assert (learned.node, learned.zone, learned.presence) == ("n1", "z1", Presence.SILENT)
    known = with_worker(job, A, node="n0", zone="z0")
    kept = hear_worker(known, status, 150.0, heard_s=150.0, presence=Presence.ALIVE).workers[A]
    assert (kept.node, kept.zone) == ("n0", "z0")


def test_a_joining_trainer_that_exits_is_noted_unless_it_holds_a_rank_or_the_run_is_over() -> None:
    job = with_worker(a_running_job("a", "b"), C)
    world = job.record.assignment
    assert world is not None
    failed_c = failed(0)
    assert learn_joining(job, C, failed_c).failures.joining == Failure(C, failed_c)
    prepared = recorded(job, prepared=replace(world, members=(replace(world.members[0], worker=C),)))
    unknown = WorkerId("x")
    for other, worker, exit_ in ((job, A, failed_c), (job, C, None), (job, unknown, failed_c), (prepared, C, failed_c)):
        assert learn_joining(other, worker, exit_) is other


def test_a_placement_is_awaited_until_the_allocator_names_one() -> None:
    job = a_running_job()
    for workers, awaits in ((None, True), ({LOCAL: 3}, False)):
        number = job.supply.want.number if job.supply.want is not None else 0
        event = events.PlacementChanged(150.0, number, workers, "short", {LOCAL: frozenset({"n1"})}, at_once=True)
        supply = learn(job, event).supply
        assert (supply.placement, supply.awaits_placement, supply.shortage) == (workers, awaits, "short")
        assert (supply.leaving, supply.at_once) == ({LOCAL: frozenset({"n1"})}, True)


def test_a_lost_record_is_saved_again() -> None:
    job = a_running_job()
    saved = replace(job, storage=replace(job.storage, saved=job.record))
    assert learn(saved, events.RecordLost(150.0)).storage.saved is None


def test_a_dropped_worker_is_a_change_and_makes_earlier_answers_void() -> None:
    table = fresh(a_running_job()).workers
    table.answers[len] = ()
    table.drop(A)
    assert table.changed == {A} and table.answers == {} and A not in table


def test_a_status_that_its_controller_repeats_soon_changes_nothing_unless_presence_or_zone_is_new() -> None:
    job = a_running_job()
    known = job.workers[A]
    status = WorkerStatus(A, known.cluster, job.name, known.seq, known.phase, known.generation)
    soon_s, later_s = known.heard_s + HEARD_AGAIN_S / 2, known.heard_s + 2 * HEARD_AGAIN_S

    def changed(status: WorkerStatus, heard_s: float, presence: Presence) -> set[WorkerId]:
        return hear_worker(fresh(job), status, later_s, heard_s=heard_s, presence=presence).workers.changed

    assert changed(status, soon_s, Presence.ALIVE) == set()
    assert changed(status, later_s, Presence.ALIVE) == {A}
    assert changed(status, soon_s, Presence.SILENT) == {A}
    assert changed(replace(status, zone="a-zone"), soon_s, Presence.ALIVE) == {A}

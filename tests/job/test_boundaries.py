"""Rules of the job core at their limits, each called directly."""

import pytest
from msgspec.structs import replace

from controlplane.job import events, learn_workers
from controlplane.job.commands import NAMED_AT_MOST, REPEAT_S, is_due, is_unconfirmed
from controlplane.job.learn import learn
from controlplane.job.learn_workers import FORGIVEN_S, learn_notice, tombstone_all
from controlplane.job.live.trainers import is_over, joining_workers, rank_before, top
from controlplane.job.overdue import OVERSLEPT_S, park_by_s, unparked_in_time
from controlplane.job.queries import DESERTED_S, TOPOLOGY_FRESH_S, can_train, deserted, is_heard, may_differ
from controlplane.job.scripts import FRESH_S, grows_at_s, has_first_step, has_fresh_checkpoint, restart_cost_s
from controlplane.job.sharing import judge_shares, wanted_by_cluster
from controlplane.job.state import Barred, Cluster, Job, adopted_job
from controlplane.job.workers import Worker
from messages.ids import ClusterName, Epoch, Generation, Rank, WorkerId
from messages.records import Phase
from messages.workers import TrainerExit, TrainerStatus, WorkerPhase
from messages.worlds import Release
from tests.job.live_stage import a_live_job
from tests.job.stage import LOCAL, Stage, a_spec, a_stage, failed, published

A, B, C = (WorkerId(name) for name in "abc")


def a_running_job(*workers: str) -> Job:
    return a_stage().runs(*(workers or ("a", "b", "c"))).job


@pytest.mark.parametrize(("workers", "is_reached"), [(2, False), (3, True), (4, True)])
def test_only_a_smaller_job_has_money_again(workers: int, is_reached: bool) -> None:
    job = a_running_job()
    job = replace(job, record=replace(job.record, budget_reached=True))
    assert learn(job, events.ScaleAsked(200.0, workers)).record.budget_reached is is_reached
    assert not learn(job, events.BudgetRaised(200.0, 5.0)).record.budget_reached


def test_the_oldest_tombstones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn_workers, "TOMBSTONES_AT_MOST", 2)
    job = a_running_job()
    assert list(tombstone_all(job, {A: "1", B: "2"}).gone) == [A, B]
    assert list(tombstone_all(job, {A: "1", B: "2", C: "3"}).gone) == [B, C]


def test_a_lost_worker_is_forgotten_and_no_other() -> None:
    job = a_running_job()
    invited_s = {A: 150.0, B: 150.0}
    job = replace(job, contacts=replace(job.contacts, invited_s=invited_s, released_s={B: 1.0}))
    barred = {A: Barred(1, 150.0), B: Barred(1, 150.0)}
    job = tombstone_all(replace(job, failures=replace(job.failures, barred=barred)), {A: "SIGKILL"})
    assert (job.contacts.invited_s, job.contacts.released_s) == ({B: 150.0}, {B: 1.0})
    assert (list(job.failures.barred), job.record.losses, job.round.lost_member) == ([B], 1, True)


def test_of_several_deadlines_the_earliest_counts_and_the_first_reason_is_kept() -> None:
    job = learn_notice(a_running_job(), A, "spot", 130.0)
    for deadline_s, earliest_s in ((140.0, 130.0), (120.0, 120.0)):
        job = learn_notice(job, A, "later", deadline_s)
        assert (job.workers[A].deadline_s, job.workers[A].noticed) == (earliest_s, "spot")


@pytest.mark.parametrize(("after_s", "is_forgiven"), [(FORGIVEN_S - 0.5, False), (FORGIVEN_S, True)])
def test_a_worker_is_trusted_again_after_it_ran_well_for_a_while(after_s: float, is_forgiven: bool) -> None:
    stage = a_live_job("a", "b")
    stage.job = replace(stage.job, failures=replace(stage.job.failures, barred={A: Barred(1, stage.now_s)}))
    stage.now_s += after_s
    stage.tell("a", *stage.trainers["a"])
    assert (A not in stage.job.failures.barred) is is_forgiven


def test_each_failure_of_a_worker_bars_it_for_longer_and_a_repeated_report_does_not() -> None:
    stage = a_stage().runs("a", "b")
    for failures, pause_s in ((1, 1.0), (2, 2.0)):
        stage.exits("a", failed(failures))
        stage.exits("a", failed(failures))
        assert stage.job.failures.barred[A] == Barred(failures, stage.now_s + pause_s)


def heard(job: Job, **changes: object) -> Worker:
    return replace(job.workers[A], step=1, **changes)


def test_the_first_step_is_that_of_a_member_of_the_running_world() -> None:
    job = a_running_job("a", "b")
    assert has_first_step(job, heard(job))
    outsider = replace(heard(job), worker=WorkerId("x"))
    earlier = heard(job, generation=Generation(job.record.generation - 1))
    assert not any(has_first_step(job, worker) for worker in (outsider, earlier, replace(heard(job), step=None)))
    start = replace(job.script.start, has_step=True)
    assert not has_first_step(replace(job, script=replace(job.script, start=start)), heard(job))
    forming = replace(job, record=replace(job.record, phase=Phase.FORMING))
    assert not has_first_step(forming, heard(job))


def test_a_checkpoint_is_fresh_if_it_is_one_more_in_this_world() -> None:
    job = a_running_job("a", "b")
    known = heard(job, checkpoints=2)
    assert has_fresh_checkpoint(job, known, heard(job, checkpoints=3))
    assert not has_fresh_checkpoint(job, known, heard(job, checkpoints=2))
    assert not has_fresh_checkpoint(job, replace(known, seq=-1), heard(job, checkpoints=3))
    earlier = Generation(job.record.generation - 1)
    assert has_fresh_checkpoint(job, replace(known, generation=earlier), heard(job, checkpoints=1))
    assert not has_fresh_checkpoint(job, replace(known, generation=earlier), heard(job, checkpoints=0))
    assert not has_fresh_checkpoint(job, known, heard(job, checkpoints=3, generation=earlier))


def test_a_world_grows_after_its_minimum_life_or_a_checkpoint() -> None:
    job = a_stage(a_spec(settle_s=50.0)).runs("a", "b").job
    up_s = job.script.start.up_s
    assert up_s is not None and grows_at_s(job, 110.0) == up_s + 50.0
    saved = replace(job, script=replace(job.script, checkpointed_s=110.0))
    assert grows_at_s(saved, 110.0 + FRESH_S) == 110.0 + FRESH_S
    assert grows_at_s(saved, 110.5 + FRESH_S) == up_s + 50.0
    start = replace(job.script.start, cost_s=2.0, cost_before_s=3.0)
    assert restart_cost_s(replace(job, script=replace(job.script, start=start))) == 3.0


def test_growth_that_a_person_asked_for_is_immediate_until_the_world_is_full() -> None:
    stage = a_stage(a_spec(workers=3))
    stage.happens(events.ScaleAsked(stage.now_s, 2))
    stage.runs("a", "b")
    stage.happens(events.ScaleAsked(stage.now_s, 3))
    assert stage.job.script.grows_at_once
    stage.join("c")
    stage.parked("a", "b")
    stage.ready("a", "b", "c")
    assert stage.phase is Phase.RUNNING and not stage.job.script.grows_at_once


def in_two_clusters(*workers: str) -> Job:
    """A job with all workers in the first of two clusters, both just heard."""
    job = a_running_job(*workers)
    other = Cluster("b1", heard_s=100.0, keeps=0)
    return replace(job, clusters={**job.clusters, ClusterName("other"): other}, gathers_until_s=None)


@pytest.mark.parametrize(("placed", "kept"), [(0, 1), (1, 1), (2, 2)])
def test_a_cluster_with_members_keeps_one_whatever_the_allocator_says(placed: int, kept: int) -> None:
    job = in_two_clusters()
    job = replace(job, supply=replace(job.supply, placement={LOCAL: placed}))
    assert wanted_by_cluster(job) == {LOCAL: kept, "other": 0}


def test_shares_are_judged_only_where_they_are_spread() -> None:
    job = in_two_clusters("a", "b")
    assert judge_shares(job, 101.0).clusters[ClusterName("other")].behind_s == 101.0
    placed = replace(job, supply=replace(job.supply, placement={LOCAL: 2}))
    awaiting = replace(job, supply=replace(job.supply, awaits_placement=True))
    gathering = replace(job, gathers_until_s=200.0)
    alone = replace(job, clusters={ClusterName("other"): job.clusters[ClusterName("other")]})
    ended = replace(job, record=replace(job.record, phase=Phase.STOPPED))
    assert all(judge_shares(each, 101.0) is each for each in (placed, awaiting, gathering, alone, ended))


@pytest.mark.parametrize("workers", [NAMED_AT_MOST, NAMED_AT_MOST + 1])
def test_a_release_of_all_names_a_hundred_at_most(workers: int) -> None:
    stage = a_stage(a_spec(workers=workers)).runs(*(f"w{number}" for number in range(workers)))
    stage.happens(events.StopAsked(stage.now_s, "asked by a person"))
    (release,) = published(stage.parked(*stage.world), Release)
    assert (release.everybody, len(release.workers)) == ((False, 100) if workers == 100 else (True, 0))


def test_a_message_is_due_again_after_a_second() -> None:
    assert is_due(None, 5.0) and is_due(5.0, 5.0 + REPEAT_S) and not is_due(5.0, 4.9 + REPEAT_S)


def test_a_running_job_has_nothing_unconfirmed_and_a_forming_one_has() -> None:
    stage = a_stage()
    stage.join("a", "b", "c")
    assert stage.phase is Phase.FORMING and is_unconfirmed(stage.job)
    stage.ready("a", "b", "c")
    assert not is_unconfirmed(stage.job)
    assert is_unconfirmed(replace(stage.job, storage=replace(stage.job.storage, saved=None)))


def test_a_joining_worker_of_two_trainers_waits_while_one_rests() -> None:
    stage = a_live_job("a", wanted=2, ranks=2)
    stage.join("b")
    both = [TrainerStatus(local, waits="to join") for local in range(2)]
    stage.tell("b", *both, phase=WorkerPhase.IDLE)
    assert [worker.worker for worker in joining_workers(stage.job)] == [B]
    for trainers in ((both[0], replace(both[1], resting=True)), both[:1]):
        stage.tell("b", *trainers, phase=WorkerPhase.IDLE)
        assert B not in [worker.worker for worker in joining_workers(stage.job)]


def test_a_live_world_is_over_when_a_script_ended_by_itself_after_the_last_step() -> None:
    for exit_, over in (
        (TrainerExit(Rank(0), code=0), True),
        (TrainerExit(Rank(0), code=0, early=True), False),
        (TrainerExit(Rank(0), code=1), False),
    ):
        stage = a_live_job("a", "b", wanted=3)
        stage.sees_gone("b")
        stage.parks("a")
        stage.enters("a")
        worker = replace(stage.job.workers[A], exits=(exit_,), trainers=())
        job = replace(stage.job, workers=stage.job.workers.own_copy())
        job.workers.put(worker)
        assert stage.live and is_over(job) is over


def test_the_top_generation_is_the_highest_of_record_workers_and_trainers() -> None:
    stage = a_live_job("a", "b")
    assert top(stage.job) == stage.generation
    job = replace(stage.job, workers=stage.job.workers.own_copy())
    trainer = job.workers[A].trainers[0]
    for changes, highest in (({"generation": 7}, 7), ({"parked": 9}, 9), ({"parked": 9, "broken": 8}, 1)):
        job.workers.put(replace(job.workers[A], trainers=(replace(trainer, **changes),)))
        assert top(job) == highest
    job.workers.put(replace(job.workers[A], trainers=(), generation=Generation(8)))
    assert top(job) == 8


def test_a_rank_before_is_one_that_the_worker_held() -> None:
    job = a_live_job("a", "b", ranks=2).job
    assert [rank_before(job, B, local) for local in range(3)] == [2, 3, -1]
    assert rank_before(job, WorkerId("x"), 0) == -1


def a_halted_world() -> tuple[Stage, float]:
    """A halted world with one worker gone, one parked and one late; with the deadline of the late one."""
    stage = a_live_job("a", "b", "c")
    stage.sees_gone("c")
    stage.parks("a")
    by_s = park_by_s(stage.job)
    assert stage.phase is Phase.RESHAPING and by_s is not None
    assert by_s == stage.now_s + stage.job.spec.timeouts.park_s
    return stage, by_s


def test_a_trainer_that_does_not_park_is_overdue_and_a_late_look_says_by_how_much() -> None:
    stage, by_s = a_halted_world()
    assert unparked_in_time(stage.job, by_s - 0.01) == ([], 0.0)
    late, slept_s = unparked_in_time(stage.job, by_s)
    assert ([worker.worker for worker, _ in late], slept_s) == ([B], 0.0)
    _, slept_s = unparked_in_time(stage.job, by_s + 2 * OVERSLEPT_S)
    assert slept_s == pytest.approx(2 * OVERSLEPT_S)


def test_a_cluster_is_heard_for_a_while_and_deserted_after_a_longer_one() -> None:
    cluster = Cluster("a1", heard_s=100.0, keeps=0)
    assert is_heard(cluster, 100.0 + TOPOLOGY_FRESH_S) and not is_heard(cluster, 100.1 + TOPOLOGY_FRESH_S)
    job = in_two_clusters()
    for after_s, lost in ((DESERTED_S, []), (DESERTED_S + 0.5, ["other"])):
        now_s = 100.0 + after_s
        spoke = replace(job.clusters[LOCAL], heard_s=now_s)
        assert deserted(replace(job, clusters={**job.clusters, LOCAL: spoke}), now_s) == lost


def test_a_worker_can_train_if_it_is_warm_stays_and_has_a_slot() -> None:
    worker = a_running_job().workers[A]
    assert can_train(worker)
    for unable in (
        replace(worker, slots=0),
        replace(worker, noticed="spot"),
        replace(worker, phase=WorkerPhase.WARMING),
        replace(worker, phase=WorkerPhase.LEAVING),
    ):
        assert not can_train(unable)


def test_a_world_may_differ_if_somebody_could_join_or_has_to_leave() -> None:
    job = a_running_job()
    assert not may_differ(job)
    larger = replace(job, workers=job.workers.own_copy())
    larger.workers.put(replace(job.workers[A], worker=WorkerId("d")))
    other = replace(job, workers=job.workers.own_copy())
    other.workers.put(replace(job.workers[A], slots=2))
    smaller = replace(job, record=replace(job.record, wanted=2))
    reloading = replace(job, record=replace(job.record, outdated=(A,)))
    assert all(may_differ(each) for each in (larger, other, smaller, reloading))


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.FORMING])
def test_a_new_master_takes_members_for_ready_only_in_a_running_world(phase: Phase) -> None:
    job = a_running_job("a", "b")
    adopted = adopted_job(job.spec, replace(job.record, phase=phase), epoch=Epoch(2), at_s=500.0, age_s=40.0)
    runs = phase is Phase.RUNNING
    assert adopted.submitted_s == 460.0 and list(adopted.workers) == ["a", "b"]
    for worker in adopted.workers.values():
        assert worker.phase is (WorkerPhase.READY if runs else WorkerPhase.STARTING)
        assert worker.generation == (job.record.generation if runs else 0)
        assert (worker.seq, worker.heard_s, worker.first_seen_s, worker.slots) == (-1, 500.0, 500.0, 1)
    assert adopted.failures.judged == 0

"""When time is over for a worker or a cluster: just before, and at the limit."""

from msgspec.structs import replace

from controlplane.job.live.next_world import HANDOVER_LEAST_S, hurry_at_s, why_plan
from controlplane.job.overdue import (
    patience_s,
    too_late,
    unparked,
    unparked_in_time,
    unreachable,
)
from controlplane.job.queries import coming, deserted, last_heard_s, leaving_workers
from controlplane.job.state import Cluster, Job
from messages.clusters import Presence
from messages.ids import ClusterName, Generation, Rank, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from tests.job.built import (
    OTHER,
    A,
    B,
    C,
    a_running_job,
    a_training_job,
    halted,
    recorded,
    with_clusters,
    with_round,
    with_trainer,
    with_worker,
)
from tests.job.stage import LOCAL


def test_a_worker_that_nothing_was_heard_of_is_unreachable_after_its_time() -> None:
    job = with_round(a_running_job("a", "b"), assigned_s=100.0)
    limit_s = job.spec.timeouts.suspect_s + job.spec.timeouts.stop_grace_s
    job = with_clusters(job, local=Cluster("a1", 101.0, 2), far=Cluster("b1", 200.0, 0))

    def lost(at: Job, after_s: float) -> list[WorkerId]:
        now_s = 101.0 + limit_s + after_s
        at = replace(at, clusters={**at.clusters, ClusterName("far"): Cluster("b1", now_s, 0)})
        return [worker.worker for worker, _ in unreachable(at, [A], now_s)]

    assert (lost(job, 0.0), lost(job, 0.1)) == ([], [A])
    assert lost(with_worker(job, A, heard_s=102.0), 0.1) == []
    assert lost(with_round(job, assigned_s=102.0), 0.1) == []
    assert lost(with_round(job, assigned_s=None), 9.0) == []
    silent = with_clusters(job, far=Cluster("b1", 100.0, 0))
    assert lost(silent, 0.1) == [A]
    assert unreachable(silent, [A], 500.0) == []


def test_workers_are_too_late_after_the_patience_of_their_job() -> None:
    job = with_round(a_running_job("a", "b"), assigned_s=100.0)
    assert patience_s(job) == 22.0
    assert too_late(job, [A], "did not start", 122.0) == []
    assert [(worker.worker, why) for worker, why in too_late(job, [A], "did not start", 122.1)] == [
        (A, "did not start within 22 s")
    ]
    assert too_late(with_round(job, assigned_s=None), [A], "did not start", 900.0) == []


def test_a_rank_has_parked_or_ended_if_no_world_follows() -> None:
    job = halted(a_training_job("a", "b", ranks=2))
    assert unparked(job) == [A, B]
    half = with_trainer(job, A, 0, parked=Generation(2))
    assert unparked(half) == [A, B]
    parked = with_trainer(half, A, 1, parked=Generation(2))
    assert unparked(parked) == [B]
    assert unparked(recorded(parked, stop_why="asked")) == [A, B]
    for phase, waits in ((WorkerPhase.PARKED, False), (WorkerPhase.IDLE, False), (WorkerPhase.READY, True)):
        without = with_worker(parked, B, trainers=(), phase=phase, generation=Generation(2))
        assert unparked(without) == ([B] if waits else [])
    early = with_worker(parked, B, trainers=(), phase=WorkerPhase.PARKED, generation=Generation(1))
    assert unparked(early) == [B]


def test_trainers_have_longer_to_park_if_nobody_answered_or_they_are_seen_alive() -> None:
    job = halted(a_training_job("a", "b", "c"))
    parking, suspect_s = job.spec.timeouts.park_s, job.spec.timeouts.suspect_s

    def late(at: Job, after_s: float) -> list[WorkerId]:
        return [worker.worker for worker, _ in unparked_in_time(at, 100.0 + after_s)[0]]

    assert (late(job, suspect_s - 0.01), late(job, suspect_s)) == ([], [A, B, C])
    answered = with_trainer(job, A, 0, parked=Generation(2))
    assert (late(answered, parking - 0.01), late(answered, parking)) == ([], [B, C])
    detached_b = with_worker(job, B, trainers=(), phase=WorkerPhase.PARKED, generation=Generation(2))
    assert late(detached_b, suspect_s - 0.01) == []
    alive = with_worker(with_trainer(answered, B, 0, parking=Generation(2)), B, heard_s=101.0)
    assert late(alive, parking) == [C]
    assert (late(alive, 1.0 + parking - 0.01), late(alive, 1.0 + parking)) == ([C], [B, C])
    later = with_worker(alive, B, heard_s=109.0)
    assert (late(later, 1.99), late(later, 2.0)) == ([C], [B, C])
    assert late(recorded(job, stop_why="asked"), 60.0) == []


def test_a_worker_that_starts_is_waited_for_until_it_is_late() -> None:
    job = with_worker(a_running_job("a", "b"), C, phase=WorkerPhase.WARMING, first_seen_s=100.0)
    assert [each.worker for each in coming(job, 119.9)] == [C] and coming(job, 120.0) == []
    assert coming(with_worker(job, C, noticed="spot"), 110.0) == []


def test_a_worker_is_proven_alive_by_its_own_cluster_only_if_it_is_alive_there() -> None:
    job = with_clusters(a_running_job(), local=Cluster("a1", 130.0, 3))
    assert last_heard_s(job, job.workers[A]) == 130.0
    silent = replace(job.workers[A], presence=Presence.SILENT, heard_s=110.0)
    assert last_heard_s(job, silent) == 110.0
    assert last_heard_s(job, replace(job.workers[A], heard_s=140.0)) == 140.0
    assert last_heard_s(job, replace(job.workers[A], cluster=OTHER, heard_s=110.0)) == 110.0


def test_a_silent_cluster_is_deserted_unless_a_worker_spoke_there() -> None:
    job = with_clusters(a_running_job("a", "b"), local=Cluster("a1", 200.0, 2), other=Cluster("b1", 100.0, 0))
    assert deserted(job, 200.0) == [OTHER]
    for seq, lost in ((-1, [OTHER]), (0, []), (1, [])):
        assert deserted(with_worker(job, C, cluster=OTHER, seq=seq), 200.0) == lost


def test_workers_leave_that_are_noticed_draining_outdated_or_surplus_and_hold_no_rank() -> None:
    job = a_running_job("a", "b")
    assert leaving_workers(job) == []
    spare = with_worker(job, C)
    assert leaving_workers(spare) == [C]
    assert leaving_workers(recorded(spare, wanted=3)) == []
    assert leaving_workers(recorded(with_worker(spare, C, noticed="spot"), wanted=3)) == [C]
    assert leaving_workers(recorded(spare, wanted=3, outdated=(C,))) == [C]
    assert leaving_workers(with_worker(spare, C, seq=-1)) == []
    drains = replace(spare.supply, leaving={LOCAL: frozenset({"node-c"})})
    on_node = recorded(replace(with_worker(spare, C, node="node-c"), supply=drains), wanted=3)
    assert leaving_workers(on_node) == [C]
    member = replace(with_worker(job, A, node="node-c"), supply=drains)
    assert leaving_workers(member) == []
    ended = recorded(job, phase=Phase.STOPPED)
    assert leaving_workers(ended) == [A, B]
    several = with_worker(with_worker(spare, WorkerId("e")), WorkerId("d"))
    assert leaving_workers(recorded(several, wanted=4)) == ["e"]


def test_a_notice_leaves_time_for_a_hand_over_until_half_a_second_before_its_end() -> None:
    job = a_training_job("a", "b", "c")
    for name, deadline_s in ((C, 130.0), (A, 140.0), (B, None)):
        job = with_worker(job, name, noticed="spot", deadline_s=deadline_s)
    assert hurry_at_s(job) == {A: 140.0 - HANDOVER_LEAST_S, C: 130.0 - HANDOVER_LEAST_S}
    assert [*hurry_at_s(job)] == [A, C]
    assert [*hurry_at_s(with_round(job, clean=frozenset({Rank(0)})))] == [C]
    assert why_plan(job) == "worker a must leave: spot"

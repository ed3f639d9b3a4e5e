"""A region is lost with its controller, so no report says that its workers are silent."""

from msgspec import structs

from controlplane.job import events
from controlplane.job.forgetting import CLUSTER_FORGOTTEN_S
from controlplane.job.queries import DESERTED_S, deserted
from messages.clusters import Presence, WorkerObservation
from messages.ids import ClusterName, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from tests.job.stage import JOB, LOCAL, NEWEST, Stage, a_spec, a_stage, a_status, failed, reported

FAR = ClusterName("far")
ANSWER_S = 7.0
"""`suspect_s` plus `stop_grace_s` of the stage's jobs."""


def two_regions() -> Stage:
    """A job with worker `a` here and worker `z` in a far region."""
    stage = a_stage(a_spec(workers=2))
    far_reports(stage)
    stage.reports(WorkerObservation(WorkerId("a"), JOB, Presence.STARTING), keeps=1)
    stage.happens(events.PlacementChanged(stage.now_s, NEWEST, {LOCAL: 1, FAR: 1}))
    stage.reports_status("a", WorkerPhase.IDLE, generation=0)
    far_text(stage, WorkerPhase.IDLE, generation=0)
    stage.ready("a")
    far_text(stage, WorkerPhase.READY)
    assert (stage.phase, stage.world) == (Phase.RUNNING, {"a": (0,), "z": (1,)})
    return stage


def far_reports(stage: Stage) -> None:
    observation = WorkerObservation(WorkerId("z"), JOB, Presence.ALIVE, status=stage.statuses.get(WorkerId("z")))
    stage.happens(events.ClusterReported(stage.now_s, FAR, "f1", keeps=1, observations=(observation,), is_whole=True))


def far_text(stage: Stage, phase: WorkerPhase, generation: int | None = None) -> None:
    name = WorkerId("z")
    stage.seqs[name] = stage.seqs.get(name, 0) + 1
    reported_generation = stage.generation if generation is None else generation
    status = a_status("z", phase, seq=stage.seqs[name], generation=reported_generation)
    stage.statuses[name] = structs.replace(status, cluster=FAR)
    stage.happens(events.WorkerSpoke(stage.now_s, stage.statuses[name]))


def near_reports(stage: Stage) -> None:
    stage.reports(*(observation for observation in stage.observations() if observation.worker != "z"), keeps=1)


def passes(stage: Stage, seconds: float) -> None:
    """Lets time pass while only the local controller reports."""
    until_s = stage.now_s + seconds
    while stage.now_s < until_s:
        stage.now_s = min(stage.now_s + 1.0, until_s)
        near_reports(stage)


def test_a_silent_region_is_left_alone_while_its_world_trains() -> None:
    stage = two_regions()
    passes(stage, 120.0)
    assert (stage.phase, stage.generation) == (Phase.RUNNING, 1)
    assert deserted(stage.job, stage.now_s) == []


def test_a_round_does_not_wait_long_for_a_region_of_which_nothing_is_heard() -> None:
    stage = two_regions()
    stage.exits("a", failed(0, peer_lost=True))
    stage.parked("a")
    passes(stage, ANSWER_S)
    assert stage.phase is Phase.RESHAPING
    passes(stage, 1.0)
    assert (stage.phase, stage.world) == (Phase.FORMING, {"a": (0,)})
    assert stage.job.record.losses == 1 and stage.job.record.failures == 0
    gone = reported(stage.effects, "worker_gone")[-1]
    assert "cluster far" in gone.why and "8 s" in gone.why


def test_a_member_that_answers_is_waited_for_though_its_controller_is_silent() -> None:
    stage = two_regions()
    stage.exits("a", failed(0, peer_lost=True))
    stage.parked("a")
    passes(stage, ANSWER_S - 1.0)
    far_text(stage, WorkerPhase.PARKED)
    passes(stage, 2.0)
    assert stage.world == {"a": (0,), "z": (1,)}


def test_a_master_that_hears_no_cluster_at_all_blames_nobody_else() -> None:
    stage = two_regions()
    stage.exits("a", failed(0, peer_lost=True))
    stage.parked("a")
    stage.wait(ANSWER_S + 5.0)
    assert stage.phase is Phase.RESHAPING
    assert WorkerId("z") in stage.job.workers


def test_a_region_that_is_lost_while_a_world_forms_is_not_waited_for_long_either() -> None:
    stage = two_regions()
    stage.exits("a", failed(0, peer_lost=True))
    stage.parked("a")
    far_text(stage, WorkerPhase.PARKED)
    passes(stage, 2.0)
    stage.ready("a")
    assert (stage.phase, stage.world) == (Phase.FORMING, {"a": (0,), "z": (1,)})
    passes(stage, ANSWER_S + 1.0)
    stage.parked("a")
    assert stage.world == {"a": (0,)}


def test_a_cluster_is_deserted_once_it_is_silent_for_long_and_nobody_of_the_job_is_left_there() -> None:
    stage = two_regions()
    stage.exits("a", failed(0, peer_lost=True))
    stage.parked("a")
    passes(stage, ANSWER_S + 1.0)
    assert deserted(stage.job, stage.now_s) == []
    passes(stage, DESERTED_S)
    assert deserted(stage.job, stage.now_s) == [FAR]
    stage.wait(10.0)
    assert deserted(stage.job, stage.now_s) == []
    passes(stage, 1.0)
    far_reports(stage)
    assert deserted(stage.job, stage.now_s) == []


def empty_reports(stage: Stage, cluster: str) -> None:
    stage.happens(events.ClusterReported(stage.now_s, ClusterName(cluster), "c1", is_whole=True))


def test_clusters_that_come_and_go_while_a_job_lives_are_forgotten_unless_somebody_of_it_was_there() -> None:
    stage = two_regions()
    for number in range(20):
        stage.now_s += CLUSTER_FORGOTTEN_S / 4
        empty_reports(stage, f"passing-{number}")
        near_reports(stage)
    lately = {f"passing-{number}" for number in range(15, 20)}
    assert set(stage.job.clusters) == {LOCAL, FAR} | lately
    empty_reports(stage, "passing-0")
    assert "passing-0" in stage.job.clusters, "it is heard again"

"""Clusters that start fewer workers than their share: after a while the others are asked for the rest."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controlplane.job import events, texts
from controlplane.job.effects import JobEffect, TellCluster
from controlplane.job.sharing import Counts, filled, wanted_by_cluster
from controlplane.job.state import adopted_job
from messages.clusters import KeepWorkers, Presence, WorkerObservation
from messages.ids import ClusterName, Epoch, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from tests.job.stage import JOB, NEWEST, Stage, a_spec, a_stage, a_status, released, reported

PATIENCE_S = 22.0
"""`ready_s` plus `stop_grace_s` of the stage's jobs."""
EAST, WEST = ClusterName("east"), ClusterName("west")


class Region:
    """A cluster whose controller obeys, and whose workers join on command of the test."""

    def __init__(self, stage: Stage, name: ClusterName) -> None:
        self.stage = stage
        self.name = name
        self.workers: list[str] = []
        self.starting: list[str] = []
        self.speaks = True
        self.keeps = 0

    def reports(self, *gone: WorkerObservation) -> None:
        if not self.speaks:
            return
        statuses = self.stage.statuses
        alive = [
            WorkerObservation(WorkerId(w), JOB, Presence.ALIVE, status=statuses[WorkerId(w)]) for w in self.workers
        ]
        starting = [WorkerObservation(WorkerId(worker), JOB, Presence.STARTING) for worker in self.starting]
        observations = (*alive, *starting, *gone)
        report = events.ClusterReported(
            self.stage.now_s, self.name, "1", keeps=self.keeps, observations=observations, is_whole=True
        )
        for effect in self.stage.happens(report):
            if isinstance(effect, TellCluster) and isinstance(effect.command, KeepWorkers):
                regions[effect.cluster].keeps = effect.command.count

    def brings(self, *workers: str) -> None:
        for worker in workers:
            self.workers.append(worker)
            self.reports_status(worker, WorkerPhase.IDLE, 0)

    def reports_status(self, worker: str, phase: WorkerPhase, generation: int | None = None) -> None:
        name = WorkerId(worker)
        stage = self.stage
        stage.seqs[name] = stage.seqs.get(name, 0) + 1
        now = stage.generation if generation is None else generation
        status = a_status(worker, phase, seq=stage.seqs[name], generation=now)
        stage.statuses[name] = structs.replace(status, cluster=self.name)
        stage.happens(events.WorkerSpoke(stage.now_s, stage.statuses[name]))

    def loses(self, worker: str) -> None:
        self.workers.remove(worker)
        self.reports(WorkerObservation(WorkerId(worker), JOB, Presence.GONE, why="preempted"))


regions: dict[ClusterName, Region] = {}


def a_job_in_two_regions(workers: int = 3) -> tuple[Stage, Region, Region]:
    stage = a_stage(a_spec(workers=workers))
    regions.clear()
    regions.update({name: Region(stage, name) for name in (EAST, WEST)})
    passes(stage, 1.0)
    return stage, regions[EAST], regions[WEST]


def passes(stage: Stage, seconds: float) -> None:
    """Lets time pass: both clusters report each second, assigned workers get ready, halted ones park."""
    until_s = stage.now_s + seconds
    while stage.now_s < until_s:
        stage.now_s = min(stage.now_s + 1.0, until_s)
        for region in regions.values():
            region.reports()
            for worker in region.workers:
                if stage.phase is Phase.FORMING and worker in stage.world:
                    region.reports_status(worker, WorkerPhase.READY)
                elif stage.phase is Phase.RESHAPING and worker in stage.world:
                    region.reports_status(worker, WorkerPhase.PARKED)


def wanted(stage: Stage) -> tuple[int, int]:
    counts = wanted_by_cluster(stage.job)
    return counts[EAST], counts[WEST]


def test_workers_are_spread_evenly() -> None:
    stage, *_ = a_job_in_two_regions()
    assert wanted(stage) == (2, 1)


def test_the_share_of_a_cluster_that_brings_no_worker_goes_to_the_other() -> None:
    stage, east, west = a_job_in_two_regions()
    west.starting = ["never"]
    east.brings("a", "b")

    passes(stage, PATIENCE_S)
    assert wanted(stage) == (2, 1)
    passes(stage, 2.0)

    assert wanted(stage) == (3, 0)
    moved = reported(stage.effects, "share_moved")
    assert [(each.fields["cluster"], each.fields["workers"]) for each in moved] == [("west", 0)]
    assert "0 of 1 worker;" in moved[0].text and "22 s" in moved[0].why
    passes(stage, 1.0)
    assert stage.job.why == f"{texts.world_of(2)}; {texts.capped(ClusterName('west'), 0)}"
    assert (east.keeps, west.keeps) == (3, 0)
    east.brings("c")
    passes(stage, 5.0)
    assert (stage.phase, set(stage.world)) == (Phase.RUNNING, {"a", "b", "c"})
    assert stage.job.why == "a world of 3"


def test_the_share_of_a_cluster_that_is_not_heard_any_more_goes_to_the_other() -> None:
    stage, east, west = a_job_in_two_regions()
    east.brings("a", "b")
    west.speaks = False
    passes(stage, PATIENCE_S + 2.0)
    assert wanted(stage) == (3, 0)
    east.brings("c")
    passes(stage, 5.0)
    assert set(stage.world) == {"a", "b", "c"}

    west.speaks = True
    passes(stage, 5.0)

    assert wanted(stage) == (3, 0), "nobody who trains is moved"
    east.loses("c")
    assert wanted(stage) == (2, 1), "but it is asked like any other"


def test_a_cluster_that_brings_some_keeps_those_and_late_ones_never_make_too_many() -> None:
    stage, east, west = a_job_in_two_regions(workers=4)
    east.brings("a")
    west.brings("x", "y")
    passes(stage, PATIENCE_S + 2.0)
    assert wanted(stage) == (1, 3)
    west.brings("z")
    passes(stage, 5.0)
    assert set(stage.world) == {"a", "x", "y", "z"}

    east.brings("late")
    passes(stage, 5.0)

    assert len(stage.world) == 4
    assert released(stage.effects) == {"late"}
    assert wanted(stage) == (1, 3)


def test_each_worker_that_comes_gives_a_cluster_more_time() -> None:
    stage, east, west = a_job_in_two_regions(workers=6)
    east.brings("a", "b", "c")
    for name in ("x", "y", "z"):
        passes(stage, PATIENCE_S - 2.0)
        assert wanted(stage) == (3, 3)
        west.brings(name)
    passes(stage, PATIENCE_S)
    assert set(stage.world) == {"a", "b", "c", "x", "y", "z"}


def test_a_lost_worker_is_replaced_where_it_was_and_not_by_a_cluster_that_could_not_bring_any() -> None:
    stage, east, _ = a_job_in_two_regions()
    east.brings("a", "b")
    passes(stage, PATIENCE_S + 2.0)
    east.brings("c")
    passes(stage, 5.0)

    east.loses("c")

    assert wanted(stage) == (3, 0)


def test_when_no_cluster_brings_its_share_all_are_asked_again_and_have_longer() -> None:
    stage, east, _ = a_job_in_two_regions(workers=4)
    east.brings("a", "b")
    passes(stage, PATIENCE_S + 2.0)
    assert wanted(stage) == (4, 0)
    passes(stage, PATIENCE_S + 2.0)
    assert wanted(stage) == (2, 2)
    [renewed] = reported(stage.effects, "shares_renewed")
    assert "22 s" in renewed.why
    passes(stage, 2 * PATIENCE_S - 5.0)
    assert wanted(stage) == (2, 2)
    passes(stage, 7.0)
    assert wanted(stage) == (4, 0)

    east.brings("c", "d")
    passes(stage, 5.0)

    assert len(stage.world) == 4
    assert stage.job.share_rounds == 0


def test_a_master_that_hears_no_cluster_blames_none() -> None:
    stage, east, west = a_job_in_two_regions()
    east.brings("a", "b")
    east.speaks = west.speaks = False
    stage.wait(5.0)
    stage.wait(10 * PATIENCE_S)
    east.speaks = west.speaks = True
    passes(stage, 2.0)
    assert wanted(stage) == (2, 1)


def test_another_master_moves_nobody_who_trains() -> None:
    stage, east, _ = a_job_in_two_regions()
    east.brings("a", "b")
    passes(stage, PATIENCE_S + 2.0)
    east.brings("c")
    passes(stage, 5.0)

    stage.job = adopted_job(stage.job.spec, stage.job.record, epoch=Epoch(2), at_s=stage.now_s)
    passes(stage, 3.0)

    assert wanted(stage) == (3, 0)
    assert (stage.phase, len(stage.world)) == (Phase.RUNNING, 3)


def a_placed_job() -> tuple[Stage, Region, Region]:
    """A job with one worker in each cluster, as placed by the allocator."""
    stage, east, west = a_job_in_two_regions(workers=2)
    places(stage, {EAST: 1, WEST: 1})
    east.brings("a")
    west.brings("x")
    passes(stage, 5.0)
    assert (stage.phase, set(stage.world)) == (Phase.RUNNING, {"a", "x"})
    return stage, east, west


def places(stage: Stage, workers: Counts) -> None:
    stage.happens(events.PlacementChanged(stage.now_s, NEWEST, workers))


def test_a_cluster_where_a_member_trains_on_a_node_that_the_allocator_has_replaced_is_not_told_to_end_all() -> None:
    stage, east, west = a_placed_job()
    places(stage, {EAST: 2})
    passes(stage, 5.0)
    assert (east.keeps, west.keeps) == (2, 1)
    assert set(stage.world) == {"a", "x"}

    west.loses("x")
    passes(stage, 5.0)

    assert (east.keeps, west.keeps) == (2, 0), "nobody trains there any more"


def test_a_cluster_whose_only_member_was_noticed_is_asked_for_no_other_where_no_node_will_be() -> None:
    stage, *_ = a_placed_job()
    stage.happens(events.WorkerNoticeCame(stage.now_s, WorkerId("x"), 15.0, "node"))
    places(stage, {EAST: 2})
    assert wanted(stage) == (2, 0)


NAMES = [ClusterName(name) for name in "abcde"]
NUMBERS = st.integers(0, 12)


@given(
    st.dictionaries(st.sampled_from(NAMES), NUMBERS),
    st.integers(0, 30),
    st.dictionaries(st.sampled_from(NAMES), NUMBERS),
)
def test_all_are_filled_as_if_one_worker_after_the_other_went_where_there_are_fewest(
    counts: Counts, wanted: int, limits: Counts
) -> None:
    one_by_one = dict(counts)
    while sum(one_by_one.values()) < wanted:
        below = [(one_by_one[name], name) for name in one_by_one if one_by_one[name] < limits.get(name, wanted)]
        if not below:
            break
        one_by_one[min(below)[1]] += 1
    assert filled(counts, wanted, limits) == one_by_one


def test_a_new_leader_asks_no_cluster_for_the_workers_of_one_it_has_not_heard_yet() -> None:
    saved = structs.replace(a_stage(a_spec(workers=4)).job.record, wanted=4)
    stage = Stage(adopted_job(a_spec(workers=4), saved, epoch=Epoch(2), at_s=500.0))
    stage.now_s = 500.1
    first = events.ClusterReported(stage.now_s, EAST, "1", keeps=2, is_whole=True)
    assert _keeps(stage.happens(first)) == []
    second = events.ClusterReported(stage.now_s, WEST, "1", keeps=1, is_whole=True)
    assert _keeps(stage.happens(second)) == []
    assert _keeps(stage.wait(2.5)) == [(WEST, 2)]


def _keeps(effects: list[JobEffect]) -> list[tuple[ClusterName, int]]:
    reported = [effect for effect in effects if isinstance(effect, TellCluster)]
    return [(each.cluster, each.command.count) for each in reported if isinstance(each.command, KeepWorkers)]

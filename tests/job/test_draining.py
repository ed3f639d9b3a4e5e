"""Nodes that the allocator wants to remove: the workers on them leave, unless too few would be left."""

from msgspec import structs

from controlplane.job import events, texts
from controlplane.job.effects import JobEffect
from messages.ids import ClusterName, WorkerId
from messages.records import Phase
from messages.worlds import Entry
from tests.job.live_stage import LiveStage, a_live_job, invited
from tests.job.stage import LOCAL, NEWEST, Stage, a_spec, a_stage, halts, released


def on_nodes(stage: Stage, *workers: str) -> None:
    """Reports each worker on the node of its name."""
    for name, status in [*stage.statuses.items()]:
        if name in workers:
            stage.seqs[name] += 1
            stage.statuses[name] = structs.replace(status, seq=stage.seqs[name], node=f"node-{name}")
            stage.happens(events.WorkerSpoke(stage.now_s, stage.statuses[name]))


def gives_up(stage: Stage, *workers: str, left: int, at_once: bool = False) -> list[JobEffect]:
    nodes = frozenset(f"node-{worker}" for worker in workers)
    event = events.PlacementChanged(stage.now_s, NEWEST, {LOCAL: left}, leaving={LOCAL: nodes}, at_once=at_once)
    return stage.happens(event)


def a_placed_job(*workers: str, at_least: int = 1, wanted: int | None = None) -> LiveStage:
    stage = a_live_job(*workers, at_least=at_least, wanted=wanted)
    on_nodes(stage, *workers)
    return stage


def test_the_worker_on_a_node_that_is_given_up_hands_over_and_is_let_go_though_as_many_are_wanted() -> None:
    stage = a_placed_job("a", "b", "c")
    gives_up(stage, "b", left=2)
    assert (stage.phase, stage.job.record.wanted) == (Phase.RUNNING, 3)
    assert stage.prepared is not None and stage.prepared.live is not None
    assert (stage.prepared.live.entry, stage.prepared.live.leaving_workers) == (Entry.PLANNED, ("b",))
    assert stage.prepared.why == texts.drained([WorkerId("b")])
    assert released(stage.enters("a", "c")) == {"b"}
    assert (stage.world, stage.job.record.losses) == ({"a": (0,), "c": (1,)}, 0)


def test_a_draining_worker_does_not_join_again() -> None:
    stage = a_placed_job("a", "b", "c")
    gives_up(stage, "b", left=2)
    stage.enters("a", "c")
    assert invited(stage.wait(2.0)) == set()
    assert stage.prepared is None


def test_nobody_goes_before_enough_others_can_train() -> None:
    stage = a_placed_job("a", "b", at_least=2, wanted=4)
    assert halts(gives_up(stage, "a", "b", left=2)) == []
    assert (stage.phase, stage.prepared) == (Phase.RUNNING, None)
    stage.join("c", "d")
    stage.attaches("c")
    assert stage.prepared is not None and {member.worker for member in stage.prepared.members} == {"a", "c"}


def test_of_many_that_are_given_up_as_many_stay_as_are_needed_until_others_come() -> None:
    stage = a_placed_job("a", "b", "c", "d", at_least=2)
    gives_up(stage, "a", "b", "c", "d", left=0)
    assert stage.prepared is not None and {member.worker for member in stage.prepared.members} == {"a", "b"}
    assert released(stage.enters("a", "b")) == {"c", "d"}


def test_a_move_hands_over_to_the_others_as_they_come() -> None:
    stage = a_placed_job("a", "b", at_least=2, wanted=2)
    gives_up(stage, "a", "b", left=2)
    stage.join("c", "d")
    assert invited(stage.effects) == {"c", "d"}
    stage.attaches("c")
    stage.enters("a", "c")
    stage.catches_up("c")
    stage.attaches("d")
    stage.enters("c", "d")
    assert (set(stage.world), stage.job.record.losses) == ({"c", "d"}, 0)


def test_where_nothing_can_come_before_they_are_gone_all_of_them_go_and_the_job_waits() -> None:
    stage = a_placed_job("a", "b", at_least=2, wanted=2)
    effects = gives_up(stage, "a", "b", left=0, at_once=True)
    assert halts(effects)[0].generation == 2
    assert halts(effects)[0].why == texts.must_leave_first([WorkerId("a"), WorkerId("b")])
    assert released(stage.parks("a", "b")) == {"a", "b"}
    assert stage.phase is Phase.WAITING
    stage.sees_gone("a")
    stage.sees_gone("b")
    assert (stage.phase, stage.job.workers, stage.job.record.losses) == (Phase.WAITING, {}, 0)


def test_one_that_must_go_before_others_can_come_is_not_taken_back_as_a_joining_worker() -> None:
    stage = a_placed_job("a", "b", at_least=2, wanted=2)
    assert halts(gives_up(stage, "a", left=1, at_once=True))[0].why == texts.must_leave_first([WorkerId("a")])
    stage.parks("a", "b")
    assert stage.phase is Phase.WAITING
    assert stage.generation == 2
    stage.sees_gone("a")
    stage.join("c")
    stage.attaches("c")
    assert set(stage.world) == {"b", "c"}


def test_after_a_loss_the_repaired_world_does_without_those_that_go_anyway() -> None:
    stage = a_placed_job("a", "b", "c")
    gives_up(stage, "b", left=2)
    stage.sees_gone("a")
    stage.parks("b", "c")
    assert stage.world == {"c": (0,)}


def test_scripts_that_cannot_change_in_place_start_again_without_it() -> None:
    stage = a_stage(a_spec(workers=3)).runs("a", "b", "c")
    on_nodes(stage, "a", "b", "c")
    effects = gives_up(stage, "c", left=2)
    assert halts(effects)[0].why == texts.drained([WorkerId("c")])
    stage.parked("a", "b", "c")
    assert set(stage.world) == {"a", "b"}
    assert released(stage.ready("a", "b")) == {"c"}


def test_a_node_that_is_wanted_after_all_keeps_its_worker() -> None:
    stage = a_placed_job("a", "b", at_least=2, wanted=3)
    gives_up(stage, "b", left=1)
    gives_up(stage, left=2)
    stage.join("c")
    stage.attaches("c")
    assert stage.prepared is not None and stage.prepared.world_size == 3


def test_a_node_of_the_same_name_in_another_cluster_is_another_node() -> None:
    stage = a_placed_job("a", "b", "c")
    elsewhere = {ClusterName("far"): frozenset({"node-b"})}
    stage.happens(events.PlacementChanged(stage.now_s, NEWEST, {LOCAL: 3}, leaving=elsewhere))
    assert (stage.phase, stage.prepared) == (Phase.RUNNING, None)

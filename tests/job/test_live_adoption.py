from msgspec import structs
from msgspec.structs import replace

from controlplane.job import events, texts
from messages.ids import Generation, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from tests.job.live_stage import LiveStage, a_live_job
from tests.job.stage import assignments, clean, failed, halts, released


def hears_all(heir: LiveStage) -> None:
    heir.wait(0)
    heir.reports(*heir.observations())


def test_a_new_master_disturbs_nobody() -> None:
    stage = a_live_job("a", "b", wanted=3)
    heir = stage.heir()
    hears_all(heir)
    assert (heir.phase, heir.generation, halts(heir.effects), assignments(heir.effects)) == (Phase.RUNNING, 1, [], [])


def test_a_new_master_does_not_end_trainers_of_which_it_has_not_heard_yet() -> None:
    stage = a_live_job("a", "b", wanted=3)
    heir = stage.heir()
    effects = heir.join("c")
    assert halts(effects) == []


def test_a_world_that_went_over_while_there_was_no_master_is_adopted() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("c")
    heir = stage.heir()
    heir.enters("a", "b")
    assert (heir.phase, heir.generation, heir.prepared) == (Phase.RUNNING, 2, None)
    assert halts(heir.effects) == []
    assert released(heir.notices("c")) == set()
    heir.tell("c", *heir.trainers["c"], generation=1)
    assert released(heir.wait(1.0)) == {"c"}


def test_a_world_that_went_over_and_ended_while_there_was_no_master_has_ended() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("c")
    heir = stage.heir()
    heir.tell("a", phase=WorkerPhase.ENDED, generation=2, exits=(clean(0),))
    assert heir.phase is Phase.RUNNING
    heir.sees_gone("b")
    assert (heir.job.record.phase, heir.job.record.losses) == (Phase.SUCCEEDED, 0)


def test_a_world_that_is_being_prepared_is_waited_for() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    heir = stage.heir()
    hears_all(heir)
    assert (heir.phase, heir.prepared) == (Phase.RUNNING, stage.prepared)
    heir.enters("a", "b", "c")
    assert (heir.generation, heir.world) == (2, {"a": (0,), "b": (1,), "c": (2,)})


def test_a_halt_that_was_published_and_not_saved_is_learned_from_those_who_obeyed() -> None:
    stage = a_live_job("a", "b", "c")
    stage.save_at_once = False
    stage.sees_gone("c")
    assert stage.generation == 2
    heir = stage.heir()
    parked = [structs.replace(trainer, parked=Generation(2)) for trainer in stage.trainers["a"]]
    heir.tell("a", *parked, phase=WorkerPhase.PARKED, generation=2)
    assert (heir.phase, heir.generation) == (Phase.RESHAPING, 3)
    heir.parks("a", "b")
    heir.sees_gone("c")
    assert heir.world == {"a": (0,), "b": (1,)}
    assert heir.live.resume == 5


def test_survivors_that_wait_are_not_started_again_by_a_master_that_has_not_heard_them() -> None:
    stage = a_live_job("a", "b", at_least=2)
    stage.sees_gone("b")
    stage.parks("a")
    assert stage.phase is Phase.WAITING
    heir = stage.heir()
    heir.statuses.clear()
    heir.join("c", "d")
    assert (heir.phase, heir.job.why) == (Phase.WAITING, texts.waits_to_hear([WorkerId("a"), WorkerId("b")]))
    heir.tell("a", *heir.trainers["a"], phase=WorkerPhase.PARKED)
    heir.sees_gone("b")
    assert heir.job.why.startswith(texts.too_few_warm(1, 2))
    heir.attaches("c")
    assert (heir.world, heir.live.previous) == ({"a": (0,), "c": (1,)}, (0, -1))


def test_a_member_that_was_halted_before_it_went_over_makes_everybody_park() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("c")
    stage.tell("a", *(structs.replace(trainer, parked=Generation(2)) for trainer in stage.trainers["a"]))
    assert (stage.phase, stage.generation) == (Phase.RESHAPING, 3)


def test_a_master_that_finds_a_round_open_closes_it() -> None:
    stage = a_live_job("a", "b", "c")
    stage.notices("c")
    stage.sees_gone("b")
    heir = stage.heir()
    heir.happens(events.Ticked(heir.now_s))
    assert halts(heir.effects)[0].generation == 3
    heir.notices("c")
    heir.sees_gone("b")
    heir.parks("a", "c")
    assert (heir.world, heir.prepared) == ({"a": (0,)}, None)


def test_who_was_removed_by_a_master_that_is_gone_is_halted_before_its_word_counts() -> None:
    """It was disconnected when the others parked, and trains on: its last report is outdated."""
    stage = a_live_job("a", "b", at_least=2)
    stage.sees_gone("b")
    stage.job = replace(
        stage.job, storage=replace(stage.job.storage, saved=structs.replace(stage.job.record, phase=Phase.WAITING))
    )
    heir = stage.heir()
    heir.tell("a", *heir.trainers["a"])
    assert (heir.phase, halts(heir.effects)[0].generation) == (Phase.RESHAPING, 3)
    heir.parks("a", done=9)
    heir.sees_gone("b")
    heir.join("c")
    heir.attaches("c")
    assert (heir.live.resume, heir.live.previous) == (9, (0, -1))


def test_one_that_was_never_parked_and_leaves_is_not_halted_again() -> None:
    stage = a_live_job("a", "b", at_least=2)
    stage.sees_gone("b")
    stage.job = replace(
        stage.job, storage=replace(stage.job.storage, saved=structs.replace(stage.job.record, phase=Phase.WAITING))
    )
    heir = stage.heir()
    heir.tell("a", *heir.trainers["a"], phase=WorkerPhase.LEAVING)
    assert (heir.phase, halts(heir.effects)) == (Phase.WAITING, [])


def test_a_failure_that_an_earlier_master_counted_does_not_count_again() -> None:
    stage = a_live_job("a", "b", at_least=2)
    stage.sign("a")
    stage.falls("b", failed(1, "a bug"))
    stage.parks("a")
    assert (stage.phase, stage.job.record.failures) == (Phase.WAITING, 1)
    heir = stage.heir()
    unparked = [structs.replace(trainer, parked=Generation(0)) for trainer in heir.trainers["a"]]
    heir.tell("a", *unparked, generation=1)
    assert heir.phase is Phase.RESHAPING
    heir.tell("b", phase=WorkerPhase.PARKED, generation=heir.generation, exits=(failed(1, "a bug"),))
    heir.parks("a")
    assert (heir.phase, heir.job.record.failures) == (Phase.WAITING, 1)


def test_an_agent_that_has_not_heard_the_halt_hears_it_though_its_trainers_have_parked() -> None:
    stage = a_live_job("a", "b", at_least=2)
    stage.sees_gone("b")
    parked = [structs.replace(trainer, parked=Generation(2)) for trainer in stage.trainers["a"]]
    stage.tell("a", *parked, phase=WorkerPhase.READY, generation=1)
    assert stage.phase is Phase.WAITING
    assert [halt.generation for halt in halts(stage.wait(1.0))] == [2]
    stage.parks("a")
    assert halts(stage.wait(1.0)) == []

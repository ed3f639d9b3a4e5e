from hypothesis import given
from hypothesis import strategies as st

from controlplane.job.live.repair import repair
from controlplane.job.ranks import arrange
from controlplane.job.workers import Worker
from messages.ids import ClusterName, Generation, Rank, WorkerId
from messages.workers import TrainerStatus
from messages.worlds import Entry, LiveWorld, Member

BATCH = 24
Survivors = dict[WorkerId, tuple[TrainerStatus, ...]]


def a_trainer(local: int, rank: int, done: int, *held: tuple[int, int]) -> TrainerStatus:
    return TrainerStatus(local, Rank(rank), Generation(3), parked=Generation(4), done=done, held=held, active=True)


def members_of(slots: dict[WorkerId, int]) -> tuple[Member, ...]:
    workers = [Worker(name, ClusterName("local"), 0.0, 0.0, slots=count) for name, count in slots.items()]
    return arrange(workers, 1).members


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[Member, ...], Survivors]:
    """Worlds of survivors at most one step apart and joining workers, with held samples that may overlap."""
    resume = draw(st.integers(1, 1000))
    slots: dict[WorkerId, int] = {}
    survivors: Survivors = {}
    rank = 0
    for index in range(draw(st.integers(1, 6))):
        name = WorkerId(f"w{index}")
        slots[name] = draw(st.integers(1, 3))
        if index > 0 and draw(st.booleans()):
            continue
        mine = []
        for local in range(slots[name]):
            first = draw(st.integers(0, BATCH - 1))
            held = draw(st.sampled_from([(), ((first, draw(st.integers(first + 1, BATCH))),)]))
            mine.append(a_trainer(local, rank, resume - draw(st.integers(0, 1)), *held))
            rank += 1
        survivors[name] = tuple(mine)
    return members_of(slots), survivors


def by_rank(members: tuple[Member, ...], survivors: Survivors) -> dict[int, TrainerStatus]:
    return {
        member.first_rank + trainer.local_rank: trainer
        for member in members
        for trainer in survivors.get(member.worker, ())
    }


def repaired(given_world: tuple[tuple[Member, ...], Survivors]) -> tuple[LiveWorld, dict[int, TrainerStatus]]:
    return repair(*given_world), by_rank(*given_world)


@given(worlds())
def test_the_world_continues_after_the_newest_sum_that_any_survivor_has(
    world: tuple[tuple[Member, ...], Survivors],
) -> None:
    live, trainers = repaired(world)
    assert live.entry is Entry.REPAIR
    assert live.resume == max(trainer.done for trainer in trainers.values())
    assert trainers[live.source].done == live.resume


@given(worlds())
def test_laggards_are_exactly_the_survivors_that_miss_that_sum(world: tuple[tuple[Member, ...], Survivors]) -> None:
    live, trainers = repaired(world)
    assert set(live.laggards) == {rank for rank, trainer in trainers.items() if trainer.done == live.resume - 1}


@given(worlds())
def test_samples_are_held_once_and_only_of_the_step_to_come(world: tuple[tuple[Member, ...], Survivors]) -> None:
    live, trainers = repaired(world)
    assert len(live.held) == sum(member.ranks for member in world[0])
    samples = [sample for held in live.held for first, last in held for sample in range(first, last)]
    assert len(samples) == len(set(samples))
    for rank, held in enumerate(live.held):
        if held:
            assert trainers[rank].done == live.resume
            assert held == trainers[rank].held


@given(worlds())
def test_the_one_that_enters_without_the_state_is_told_so(world: tuple[tuple[Member, ...], Survivors]) -> None:
    live, trainers = repaired(world)
    for rank, previous in enumerate(live.previous):
        assert previous == (trainers[rank].rank if rank in trainers else -1)


def test_who_holds_samples_keeps_them_and_who_claims_them_too_begins_again() -> None:
    a, b, c = WorkerId("a"), WorkerId("b"), WorkerId("c")
    survivors = {
        a: (a_trainer(0, 1, 7, (0, 4), (9, 10)),),
        b: (a_trainer(0, 2, 7, (3, 6)),),
        c: (a_trainer(0, 3, 6, (6, 9)),),
    }
    live = repair(members_of({a: 1, b: 1, c: 1}), survivors, leaving_workers=(WorkerId("d"),))
    assert live == LiveWorld(
        Entry.REPAIR,
        previous=(1, 2, 3),
        leaving_workers=(WorkerId("d"),),
        resume=7,
        source=Rank(0),
        laggards=(Rank(2),),
        held=(((0, 4), (9, 10)), (), ()),
    )

from hypothesis import given
from hypothesis import strategies as st

from controlplane.job.ranks import arrange, choose, ranks_of, shares
from controlplane.job.workers import Worker
from messages.ids import ClusterName, WorkerId
from messages.jobs import Workers

names = st.text("abcdef", min_size=1, max_size=4)


@st.composite
def workers(draw: st.DrawFn) -> list[Worker]:
    ids = draw(st.lists(names, unique=True, max_size=12))
    return [
        Worker(
            worker=WorkerId(name),
            cluster=ClusterName("local"),
            first_seen_s=0.0,
            heard_s=0.0,
            slots=draw(st.integers(1, 8)),
            region=draw(st.sampled_from(("", "eu", "us"))),
            zone=draw(st.sampled_from(("a", "b"))),
        )
        for name in ids
    ]


@given(workers(), st.integers(1, 9))
def test_ranks_are_0_to_world_minus_1_each_held_once_and_replicas_whole(some: list[Worker], replica: int) -> None:
    world = arrange(some, replica)
    assert [rank for member in world.members for rank in ranks_of(member)] == list(range(world.world_size))
    assert world.world_size % replica == 0
    assert sum(worker.slots for worker in some) - world.world_size < replica


@given(workers(), st.integers(1, 4), st.data())
def test_two_masters_that_see_the_same_members_agree(some: list[Worker], replica: int, data: st.DataObject) -> None:
    assert arrange(some, replica) == arrange(data.draw(st.permutations(some)), replica)


@given(workers(), st.integers(1, 4))
def test_neighbours_in_rank_are_neighbours_on_the_network(some: list[Worker], replica: int) -> None:
    places = [(member.region, member.zone) for member in arrange(some, replica).members]
    assert places == sorted(places)


@given(workers(), st.integers(1, 4))
def test_each_member_is_one_of_the_workers_and_none_is_twice(some: list[Worker], replica: int) -> None:
    placed = [member.worker for member in arrange(some, replica).members]
    assert len(set(placed)) == len(placed)
    assert set(placed) <= {worker.worker for worker in some}


@given(workers(), st.integers(0, 12), st.data())
def test_who_is_in_the_world_stays_in_it(some: list[Worker], wanted: int, data: st.DataObject) -> None:
    current = set(data.draw(st.lists(st.sampled_from([w.worker for w in some]), unique=True))) if some else set()
    picked = {worker.worker for worker in choose(some, wanted, current, Workers(max=100))}
    assert len(picked) == min(wanted, len(some))
    assert picked >= current or picked <= current


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_shares_add_up_to_the_global_batch_and_are_even(batch: int, world_size: int) -> None:
    each = shares(batch, world_size)
    assert sum(each) == batch
    assert max(each) - min(each) <= 1

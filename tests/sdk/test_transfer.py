"""The transfer of the state to a joining rank: it arrives to the last bit, and its fingerprint admits the rank."""

import pytest

from tests.sdk.states import differences
from tests.sdk.transfers import LONG_S, Stage, loaded, received
from tradewind.sdk.transfer.receiver import Admission


@pytest.mark.parametrize("of", [1, 3])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_joining_worker_gets_the_state_from_all_survivors_and_replays_to_the_same_bits(
    stage: Stage, of: int, prepared: bool
) -> None:
    receiver = stage.receiver()
    survivors = [stage.survivor() for _ in range(of)]
    if prepared:
        for survivor in survivors:
            nbytes = survivor.rank.state.nbytes()
            survivor.streamer.prepare(receiver.destination(), nbytes, of)
    jobs = [survivor.stream(receiver, shard, of) for shard, survivor in enumerate(survivors)]

    for job, survivor in zip(jobs, survivors, strict=True):
        assert job.copied.wait(LONG_S)
        survivor.rank.steps(12, 13)
    snapshot = received(receiver)
    joining_rank = loaded(snapshot).steps(12, 13)

    assert (snapshot.generation, snapshot.step) == (5, 2)
    assert differences(joining_rank.state, survivors[0].rank.state) == []
    assert [job.error for job in jobs] == [""] * of
    assert receiver.poll() is None, "it is given out once"


def test_two_joining_workers_at_once_get_the_same_state(stage: Stage) -> None:
    receivers = [stage.receiver(), stage.receiver()]
    survivors = [stage.survivor(), stage.survivor()]

    for receiver in receivers:
        for shard, survivor in enumerate(survivors):
            survivor.stream(receiver, shard, of=2)

    for receiver in receivers:
        assert differences(loaded(received(receiver)).state, survivors[0].rank.state) == []


def test_a_joining_worker_that_is_level_is_admitted_by_its_fingerprint(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.stream(receiver)
    joining_rank = loaded(received(receiver)).steps(12)
    survivor.rank.step(12)
    assert (receiver.admission, receiver.admitted()) == (Admission.NOT_ASKED, None)

    receiver.ask_admission(3, joining_rank.state.fingerprint())
    assert receiver.wait_admission(LONG_S) is Admission.UNKNOWN
    assert receiver.admitted() is None

    survivor.fingerprints[3] = survivor.rank.state.fingerprint()
    receiver.ask_admission(3, joining_rank.state.fingerprint())
    assert receiver.wait_admission(LONG_S) is Admission.ADMITTED
    assert receiver.admitted() is True


def test_a_joining_worker_with_another_state_is_refused_and_may_ask_again(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.stream(receiver)
    joining_rank = loaded(received(receiver)).steps(99)
    survivor.fingerprints[3] = survivor.rank.steps(12).state.fingerprint()

    receiver.ask_admission(3, joining_rank.state.fingerprint())
    assert receiver.wait_admission(LONG_S) is Admission.REFUSED
    assert receiver.admitted() is False

    receiver.ask_admission(3, survivor.fingerprints[3])
    assert receiver.wait_admission(LONG_S) is Admission.ADMITTED


def test_a_survivor_that_is_gone_when_it_is_asked_is_noticed(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.stream(receiver)
    joining_rank = loaded(received(receiver))
    survivor.streamer.close()

    receiver.ask_admission(2, joining_rank.state.fingerprint())

    assert receiver.wait_admission(LONG_S) is Admission.LOST
    assert receiver.admitted() is None


def test_a_second_attempt_for_the_same_joining_worker_has_its_own_connection(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.stream(receiver, step=2)
    assert received(receiver).step == 2

    survivor.rank.step(12)
    survivor.stream(receiver, step=3)
    snapshot = received(receiver)

    assert snapshot.step == 3
    assert differences(loaded(snapshot).state, survivor.rank.state) == []

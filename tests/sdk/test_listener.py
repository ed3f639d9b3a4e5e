"""The listener of a joining trainer: its address, its token, and the connections that it accepts."""

import contextlib
import socket
from functools import partial

import pytest

from tests.conftest import eventually_blocking
from tests.sdk.states import differences
from tests.sdk.transfers import LONG_S, LOOPBACK, Stage, introduction, loaded, received, was_closed
from tradewind.sdk.transfer import listener
from tradewind.sdk.transfer.listener import SPARE_PLACES
from tradewind.sdk.transfer.receiver import Receiver

ELSEWHERE = "127.0.0.2"
"""Another address of this machine, which loopback answers too."""


def is_reached(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), LONG_S).close()
    except ConnectionRefusedError:
        return False
    return True


def test_it_listens_at_the_address_of_the_worker_and_nowhere_else(stage: Stage) -> None:
    port = stage.receiver().port

    assert is_reached(LOOPBACK, port)
    assert not is_reached(ELSEWHERE, port)


def test_it_is_open_only_while_the_trainer_joins(stage: Stage) -> None:
    receiver = stage.receiver()
    sender = stage.foreign(receiver, introduction(receiver))
    eventually_blocking(lambda: receiver._connections, what="a peer is connected")

    receiver.stop_listening()

    eventually_blocking(lambda: not is_reached(LOOPBACK, receiver.port), what="nothing listens there")
    assert list(receiver._connections), "a peer that is connected stays"
    sender.close()


def test_each_world_has_its_own_port_and_token_and_a_late_one_does_not_replace_a_newer(stage: Stage) -> None:
    receiver = stage.receiver()
    port, token = receiver.listen(7, LOOPBACK, [LOOPBACK], 2)
    late, _ = receiver.listen(6, LOOPBACK, [LOOPBACK], 2)

    eventually_blocking(lambda: not is_reached(LOOPBACK, receiver.port), what="the port of the world before is closed")
    eventually_blocking(lambda: not is_reached(LOOPBACK, late), what="the port that came late is closed")
    assert is_reached(LOOPBACK, port)
    assert token != receiver.token


def test_an_address_that_this_worker_does_not_have_is_named() -> None:
    with pytest.raises(OSError, match=r" 192\.0\.2\.1: ") as refused:
        Receiver().listen(1, "192.0.2.1", [], 2)
    assert isinstance(refused.value.__cause__, OSError)
    assert str(refused.value).endswith(str(refused.value.__cause__))


def test_the_token_does_not_help_a_connection_from_an_address_that_no_member_has(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver, survivor = stage.receiver(peers=(LOOPBACK, "name.invalid")), stage.survivor()

    for _ in range(2):
        assert was_closed(stage.foreign(receiver, introduction(receiver), source=ELSEWHERE))
    assert capfd.readouterr().err == f"{listener.refused(ELSEWHERE, [LOOPBACK])}\n"

    job = survivor.job(receiver)
    job.to = receiver.destination(LOOPBACK)
    survivor.streamer.offer(job)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


def test_a_survivor_connects_from_its_own_address(stage: Stage) -> None:
    receiver, survivor = stage.receiver(peers=(ELSEWHERE,)), stage.survivor()
    survivor.streamer.prepare(receiver.destination(ELSEWHERE), 1000, 1)
    eventually_blocking(lambda: receiver._connections, what="it counts as a peer")

    survivor.stream(receiver)

    assert received(receiver).step == 2


def test_connections_without_the_token_are_few_and_the_rest_is_closed_at_once(stage: Stage) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()
    silent = [stage.foreign(receiver) for _ in range(2 + SPARE_PLACES)]

    assert was_closed(stage.foreign(receiver, introduction(receiver)))
    assert not receiver._connections

    for each in silent:
        each.close()
    eventually_blocking(lambda: not was_closed_at_once(stage, receiver.port), what="there is room again")
    survivor.stream(receiver)
    assert received(receiver).step == 2


def was_closed_at_once(stage: Stage, port: int) -> bool:
    with socket.create_connection((LOOPBACK, port), LONG_S) as sock:
        sock.settimeout(0.02)
        with contextlib.suppress(TimeoutError):
            return was_closed(sock)
    return False


def test_a_silent_connection_is_closed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "INTRODUCTION_S", 0.02)

    assert was_closed(stage.foreign(stage.receiver()))


def test_a_peer_that_was_admitted_leaves_its_place_to_others(stage: Stage) -> None:
    receiver = stage.receiver()
    for _ in range(2 * (2 + SPARE_PLACES)):
        admitted = len(receiver._connections) + 1
        stage.foreign(receiver, introduction(receiver))
        eventually_blocking(partial(holds, receiver, admitted), what="it is admitted")


def holds(receiver: Receiver, connections: int) -> bool:
    return len(receiver._connections) == connections

"""Where a trainer stands, without any process: orders in, statuses out."""

import json
import threading
import time
from typing import Any

import pytest

from tradewind.protocol.trainer import Assign, Halt, Locate, Store
from tradewind.sdk.certificate import Digest
from tradewind.sdk.control_words import Agreed
from tradewind.sdk.groups.builder import LoneGroup
from tradewind.sdk.groups.group import Built
from tradewind.sdk.member import Member, World
from tradewind.sdk.stopping import Ending

STORE = Store("127.0.0.1", 1)


class Line:
    """The end of the agent."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.built: list[int] = []

    def member(self) -> Member:
        return Member(
            12, Ending(100), lambda line: self.told.append(json.loads(line)), lambda a: self.built.append(a.generation)
        )

    @property
    def last(self) -> dict[str, Any]:
        return self.told[-1]


def in_a_first_world(line: Line) -> Member:
    member = line.member()
    member.obey(Assign(1, 0, 2, "start", STORE))
    assert member.take_up(0.0) is not None
    member.started(5)
    return member


def repair(generation: int, held: tuple[Any, ...] = (((0, 6),),)) -> Assign:
    return Assign(generation, 0, 1, "repair", STORE, previous=(0,), resume=5, held=held)


def test_a_halt_is_answered_at_once_with_what_is_held() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Halt(2))
    assert (line.last["parked"], line.last["done"], line.last["held"]) == (2, 5, [[0, 6]])


def test_a_repaired_world_adds_what_nobody_holds() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Halt(2))
    member.obey(repair(2))
    assert member.take_up(0.0) is not None
    assert member.held == ((0, 12),) and member.keeps_gradients


def test_gradients_that_the_master_does_not_count_are_computed_anew() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Halt(2))
    member.obey(repair(2, held=((),)))
    assert member.take_up(0.0) is not None
    assert member.held == ((0, 12),) and not member.keeps_gradients


def test_a_world_below_the_last_halt_is_not_entered() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Halt(3))
    member.obey(repair(2))
    assert member.take_up(0.0) is None


def test_a_planned_world_does_not_push_out_the_repair_that_comes_before_it() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Halt(2))
    member.obey(repair(2))
    member.obey(Assign(3, 0, 2, "planned", STORE, previous=(0, -1)))
    entered = member.take_up(0.0)
    assert entered is not None and entered.generation == 2
    assert member.held == ((0, 12),)
    assert line.built == [1, 2, 3]


def test_who_fell_out_of_a_broken_world_does_not_take_refuge_in_the_planned_one() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Assign(2, 0, 2, "planned", STORE, previous=(0, -1)))
    member.gives_up("a peer is gone")
    assert (line.last["broken"], line.last["parked"]) == (1, 2)
    assert member.take_up(0.0) is None
    member.obey(Halt(3))
    member.obey(repair(3))
    assert member.take_up(0.0) is not None and member.keeps_gradients


def test_who_was_left_out_enters_a_planned_world_without_its_state() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Halt(2))
    member.obey(Assign(3, 1, 2, "planned", STORE, previous=(0, -1)))
    assert member.take_up(0.0) is not None
    assert not member.is_active and member.held == ()


def test_who_has_left_is_no_longer_the_first_of_those_that_have_the_state() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.built(1, Built(LoneGroup()))
    member.obey(Assign(2, 0, 1, "planned", STORE, previous=(1,), leaves=True))
    assert member.world is not None and member.world.is_first
    built = member.start_collective()
    assert built is not None
    assert member.summed(built, Agreed(2, 2, 5, Digest(), 0.0, (True, True)), counts=True)
    assert not member.world.is_first and member.held == ()


def test_orders_that_are_repeated_change_nothing() -> None:
    line = Line()
    member = in_a_first_world(line)
    for _ in range(3):
        member.obey(Halt(2))
        member.obey(repair(2))
    assert line.built == [1, 2]
    assert member.take_up(0.0) is not None
    member.obey(repair(2))
    assert member.take_up(0.0) is None


def test_a_planned_world_that_cannot_be_built_is_told_and_the_present_one_goes_on() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.built(1, Built(LoneGroup()))
    member.obey(Assign(2, 0, 2, "planned", STORE, previous=(0, -1)))
    member.built(2, None)
    assert (line.last["generation"], line.last["parked"], line.last["broken"]) == (1, 0, 2)
    assert member.ready_for() == 0
    assert member.start_collective() is not None


def test_a_world_that_was_halted_before_it_could_not_be_built_is_not_told() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Assign(2, 0, 2, "planned", STORE, previous=(0, -1)))
    member.obey(Halt(3))
    member.built(2, None)
    member.tell()
    assert (line.last["parked"], line.last["broken"]) == (3, 0)


def test_a_world_is_whole_after_a_repair_if_only_a_joiner_is_not_in_it() -> None:
    before = World(Assign(2, 0, 3, "planned", STORE, previous=(0, 1, -1)), (True, True, False))
    assert before.is_whole_in(Assign(3, 0, 2, "repair", STORE, previous=(0, 1)))
    assert before.is_whole_in(Assign(3, 0, 3, "repair", STORE, previous=(0, 1, -1)))
    assert not before.is_whole_in(Assign(3, 0, 1, "repair", STORE, previous=(0,)))
    assert not before.is_whole_in(Assign(3, 0, 2, "repair", STORE, previous=(0, -1)))


def in_a_collective(line: Line) -> tuple[Member, Built]:
    member = in_a_first_world(line)
    member.built(1, Built(LoneGroup()))
    built = member.start_collective()
    assert built is not None
    return member, built


def test_a_long_wait_is_told_once_and_breaks_nothing() -> None:
    line = Line()
    member, built = in_a_collective(line)
    member.step_s = lambda: 0.25
    told = len(line.told)
    member.waits_long()
    member.waits_long()
    assert len(line.told) == told + 1
    assert (line.last["waiting"], line.last["overdue"], line.last["step_s"]) == (5, True, 0.25)
    assert (line.last["broken"], line.last["parked"]) == (0, 0)
    member.summed(built, Agreed(0, 0, 5, Digest(), 0.0, (True, True)), counts=True)
    assert (line.last["waiting"], line.last["overdue"], line.last["done"]) == (None, False, 6)


def test_who_is_asked_where_it_is_tells_it_at_once_and_tells_when_it_has_left() -> None:
    line = Line()
    member = in_a_first_world(line)
    member.obey(Locate())
    assert (line.last["waiting"], line.last["overdue"]) == (None, False)
    member.built(1, Built(LoneGroup()))
    built = member.start_collective(4)
    assert built is not None
    member.obey(Locate())
    assert (line.last["waiting"], line.last["overdue"]) == (4, False)
    assert member.ended_collective(built, ok=True)
    assert line.last["waiting"] is None


def test_steps_that_nobody_waits_for_are_not_told() -> None:
    line = Line()
    member, built = in_a_collective(line)
    told = len(line.told)
    member.summed(built, Agreed(0, 0, 5, Digest(), 0.0, (True, True)), counts=True)
    assert len(line.told) == told


def test_a_pause_is_told_from_its_beginning_to_its_end_whatever_happens_inside() -> None:
    line = Line()
    member = in_a_first_world(line)
    with pytest.raises(KeyError), member.paused("evaluating"):
        assert line.last["paused"] == "evaluating" and line.last["paused_at"] > 0
        with member.paused("downloading"):
            assert line.last["paused"] == "downloading"
        assert line.last["paused"] == "evaluating"
        raise KeyError
    assert (line.last["paused"], line.last["paused_at"]) == ("", 0.0)


def test_who_waits_for_its_group_to_be_built_is_not_taken_for_one_that_does_not_come() -> None:
    line = Line()
    member = in_a_first_world(line)
    came: list[Built | None] = []
    thread = threading.Thread(target=lambda: came.append(member.start_collective()))
    thread.start()
    deadline_s = time.monotonic() + 10
    while line.last.get("waiting") is None and time.monotonic() < deadline_s:
        member.obey(Locate())
    assert (line.last["waiting"], line.last["overdue"]) == (5, False)
    member.obey(Halt(2))
    thread.join(10)
    assert came == [None]
    member.obey(Locate())
    assert line.last["waiting"] is None

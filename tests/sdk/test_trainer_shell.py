"""The shell of a trainer's core: which threads wait, what wakes them, what it sends."""

import json
import threading
from typing import Any

import pytest

from tests.conftest import eventually_blocking
from tests.sdk.trainers import STORE
from tradewind.protocol.trainer import Assign, Halt, Locate
from tradewind.sdk.groups.builder import LoneGroup
from tradewind.sdk.groups.group import Built, Group
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.trainer.state import OUTSIDE, Trainer

START = Assign(1, 0, 2, "start", STORE)


class Cuttable(LoneGroup):
    def __init__(self) -> None:
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


class Stage:
    def __init__(self) -> None:
        self.reported: list[dict[str, Any]] = []
        self.builds: list[int] = []
        self.retired: list[Group] = []
        self.shell = TrainerShell(
            Trainer(batch=12, steps=100),
            lambda line: self.reported.append(json.loads(line)),
            lambda assign: self.builds.append(assign.generation),
            self.retired.append,
        )

    @property
    def last(self) -> dict[str, Any]:
        return self.reported[-1]

    def start(self) -> Cuttable:
        """Rank 0 of two, before step 5."""
        group = Cuttable()
        self.shell.obey(START)
        assert self.shell.await_world() == START
        self.shell.built(1, Built(group))
        self.shell.started(5)
        return group


@pytest.fixture
def stage() -> Stage:
    return Stage()


def in_a_thread(action: Any) -> tuple[threading.Thread, list[Any]]:
    came: list[Any] = []
    thread = threading.Thread(target=lambda: came.append(action()), daemon=True)
    thread.start()
    return thread, came


def until(stage: Stage, field: str, value: Any) -> None:
    def is_reported() -> bool:
        stage.shell.obey(Locate())
        return bool(stage.last[field] == value)

    eventually_blocking(is_reported, f"{field} == {value}")


def test_an_assignment_wakes_the_thread_that_waits_for_a_world_and_starts_its_build(stage: Stage) -> None:
    thread, came = in_a_thread(stage.shell.await_world)
    stage.shell.obey(START)
    thread.join(10)
    assert came == [START] and stage.builds == [1]


def test_a_group_wakes_the_thread_that_waits_for_it(stage: Stage) -> None:
    stage.shell.obey(START)
    stage.shell.await_world()
    thread, came = in_a_thread(stage.shell.start_collective)
    until(stage, "waiting", 0)
    built = Built(Cuttable())
    stage.shell.built(1, built)
    thread.join(10)
    assert came == [built]


def test_a_halt_wakes_the_thread_that_waits_for_a_group(stage: Stage) -> None:
    stage.shell.obey(START)
    stage.shell.await_world()
    thread, came = in_a_thread(stage.shell.start_collective)
    until(stage, "waiting", 0)
    stage.shell.obey(Halt(2))
    thread.join(10)
    assert came == [None] and (stage.last["waiting"], stage.last["parked"]) == (None, 2)


def test_a_halt_cuts_the_group_and_a_switch_retires_it(stage: Stage) -> None:
    group = stage.start()
    assert stage.shell.start_collective() is not None
    stage.shell.obey(Halt(2))
    assert group.is_cut and stage.shell.is_halted()
    assert not stage.shell.ended_collective(ok=False)
    stage.shell.obey(Assign(2, 0, 1, "repair", STORE, previous=(0,), resume=5, held=(((0, 6),),)))
    stage.shell.await_world()
    assert stage.retired == [group]


def test_a_rest_ends_by_itself_while_the_thread_waits_for_a_world(stage: Stage) -> None:
    stage.start()
    stage.shell.give_up("another state", rest_s=0.05)
    thread, _ = in_a_thread(stage.shell.await_world)
    eventually_blocking(lambda: not stage.last["resting"], "the end of the rest")
    assert (stage.last["resting"], stage.last["waits"]) == (False, OUTSIDE)
    assert thread.is_alive()


def test_a_report_says_how_long_steps_take(stage: Stage) -> None:
    stage.shell.step_s = lambda: 0.25
    stage.shell.report()
    assert stage.last["step_s"] == 0.25


def test_a_pause_is_reported_from_its_beginning_to_its_end_whatever_happens_inside(stage: Stage) -> None:
    stage.start()
    with pytest.raises(KeyError), stage.shell.paused("evaluating"):
        assert stage.last["paused"] == "evaluating" and stage.last["paused_at"] > 0
        raise KeyError
    assert (stage.last["paused"], stage.last["paused_at"]) == ("", 0.0)

"""The traces of trainers, and the pauses at changes of the world."""

from pathlib import Path

import pytest

from messages.ids import Generation, Rank
from tests.demo.facts import FIRST, FULL_AGAIN, SMALLER, WRITTEN, traced
from tradewind.demo.timeline import Moment, pause_s, read, repeated_steps, usual_step_s
from tradewind.sdk.diagnostics import Trace


def test_what_a_trainer_writes_can_be_read(tmp_path: Path) -> None:
    trace = Trace(str(tmp_path))
    trace("entered", 1, 2, 7, entry="repair")
    trace("step", 1, 2, 7)
    read_back = read(tmp_path)
    assert [(one.what, one.rank, one.generation, one.step) for one in read_back] == [
        ("entered", 1, 2, 7),
        ("step", 1, 2, 7),
    ]
    assert len({one.pid for one in read_back}) == 1


def test_half_a_line_of_a_killed_trainer_is_left_out(tmp_path: Path) -> None:
    whole = '{"at": 1.5, "what": "step", "rank": 0, "generation": 1, "step": 3}'
    (tmp_path / "4711.jsonl").write_text(f"{whole}\n{whole[:20]}")
    assert read(tmp_path) == (Moment(1.5, "step", Rank(0), FIRST, 3, 4711),)


def test_nothing_was_written_where_no_folder_is(tmp_path: Path) -> None:
    assert read(tmp_path / "absent") == ()
    assert usual_step_s(()) == 0.0
    assert pause_s((), FIRST, SMALLER) == 0.0


def test_a_pause_is_what_the_longest_step_took_more_than_usual() -> None:
    assert pause_s(WRITTEN, FIRST, SMALLER) == pytest.approx(0.1)
    assert pause_s(WRITTEN, SMALLER, FULL_AGAIN) == pytest.approx(0.02)


def test_while_a_joining_worker_has_no_share_every_step_belongs_to_its_join() -> None:
    slow = tuple(one if one.step < 37 or one.what == "active" else later(one, 0.5) for one in WRITTEN)
    assert pause_s(slow, SMALLER, FULL_AGAIN) == pytest.approx(0.5)
    later_still = tuple(one if one.step < 38 else later(one, 0.5) for one in WRITTEN)
    assert pause_s(later_still, SMALLER, FULL_AGAIN) == pytest.approx(0.02)


def test_a_rank_that_gets_the_last_sum_from_another_has_not_computed_a_step_again() -> None:
    written = (
        *traced(1, "1 2 3", range(10), from_s=100.0),
        *traced(1, "1", range(10, 11), from_s=101.0),
        *traced(2, "1 2 3", range(10, 11), from_s=101.2, what="caught_up")[1:],
        *traced(2, "1 2 3", range(11, 20), from_s=101.3),
    )
    assert repeated_steps(written, FIRST, SMALLER) == 0
    assert pause_s(written, FIRST, SMALLER) == pytest.approx(0.2)


def test_a_step_that_the_dead_alone_had_is_not_computed_again_by_those_who_continue() -> None:
    written = (
        *traced(1, "1 2 3", range(10), from_s=100.0),
        *traced(1, "1", range(10, 11), from_s=101.0),
        *traced(2, "2 3", range(10, 20), from_s=101.2),
    )
    assert repeated_steps(written, FIRST, SMALLER) == 0


def test_of_a_world_that_was_started_again_all_steps_are_compared() -> None:
    written = (*traced(1, "1 2", range(10), from_s=100.0), *traced(2, "3 4", range(6, 20), from_s=105.0))
    assert repeated_steps(written, FIRST, SMALLER) == 4
    assert pause_s(written, FIRST, SMALLER) == pytest.approx(4.0)


def later(moment: Moment, by_s: float) -> Moment:
    generation = Generation(moment.generation)
    return Moment(moment.at + by_s, moment.what, moment.rank, generation, moment.step, moment.pid)

"""The measured times of a rank's steps, with a clock of the test and in real runs."""

import json
from pathlib import Path
from typing import Any

from pytest import approx

from tests.sdk.live_job import LiveJob
from tests.sdk.trainee import Recipe, model_of
from tradewind.sdk.agent.reports import Reports
from tradewind.sdk.timing import Lap, Meter, Recent, StepSize


class HandClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Rank:
    """A rank that reads for 1 s and updates for 2 s; its times of computing and waiting are chosen."""

    def __init__(self) -> None:
        self._clock = HandClock()
        self.meter = Meter(self._clock)

    def step(self, computes_s: float = 4.0, waits_s: float = 8.0, batches: int = 1) -> Lap:
        self._clock.now_s += 1.0
        for _ in range(batches):
            self.meter.hand_out()
            self._clock.now_s += computes_s
        self.meter.begin_all_reduce()
        self._clock.now_s += waits_s
        lap = self.meter.end_step()
        self._clock.now_s += 2.0
        return lap

    def pause(self, seconds: float) -> None:
        self.meter.disturb()
        self._clock.now_s += seconds


def test_a_step_lasts_from_all_reduce_to_all_reduce_and_its_parts_are_measured_apart() -> None:
    rank = Rank()
    rank.step()
    assert rank.step() == Lap(seconds=15.0, computed_s=4.0, waited_s=8.0, is_whole=True)
    assert rank.step(computes_s=1.0, waits_s=0.5).seconds == 4.5


def test_the_first_step_and_one_through_a_change_of_the_world_are_not_whole() -> None:
    rank = Rank()
    assert not rank.step().is_whole
    assert rank.step().is_whole
    rank.pause(60.0)
    disturbed = rank.step()
    assert (disturbed.is_whole, disturbed.seconds) == (False, 75.0)
    assert rank.step().is_whole
    rank.meter.begin()
    assert not rank.step().is_whole


def test_a_step_that_was_computed_in_two_pieces_is_not_whole() -> None:
    rank = Rank()
    rank.step()
    assert not rank.step(batches=2).is_whole


def test_who_has_no_share_has_only_waited() -> None:
    rank = Rank()
    rank.step()
    assert rank.step(batches=0) == Lap(seconds=11.0, computed_s=0.0, waited_s=8.0, is_whole=True)


def test_only_whole_steps_are_reported_but_bytes_and_samples_from_the_first_on() -> None:
    lines: list[dict[str, Any]] = []
    reports = Reports(lambda line: lines.append(json.loads(line)), StepSize(4096, 48))
    reports.add(0, 1.0, 24, 1, 0, Lap(9.0, 1.0, 1.0, is_whole=False))
    reports.add(1, 1.0, 24, 1, 0, Lap(2.0, 1.5, 0.25, is_whole=True))
    reports.add(2, 1.0, 24, 1, 0, Lap(2.0, 1.5, 0.25, is_whole=True))
    reports.close()
    same = {"gradient_bytes": 4096, "global_batch": 48}
    nothing = {"steps": 0, "samples": 0, "seconds": 0, "computed_s": 0, "waited_s": 0}
    assert [line["measured"] for line in lines] == [
        {**nothing, "longest_s": 9.0, **same},
        {"steps": 2, "samples": 24, "seconds": 2.0, "computed_s": 1.5, "waited_s": 0.25, "longest_s": 9.0, **same},
    ]


def a_lap(seconds: float) -> Lap:
    return Lap(seconds, seconds / 2, seconds / 4, is_whole=True)


def test_what_is_measured_now_outweighs_what_was() -> None:
    recent = Recent()
    for _ in range(600):
        recent.add(8, a_lap(1.0))
    for _ in range(200):
        recent.add(8, a_lap(2.0))
    means = recent.means()
    assert means.steps == 800
    assert means.seconds == approx(2.0, rel=0.01)
    assert (means.samples, means.computed_s, means.waited_s) == approx((8.0, means.seconds / 2, means.seconds / 4))


def test_long_steps_are_remembered_by_their_number_and_short_ones_by_their_time() -> None:
    long, short = Recent(), Recent()
    for _ in range(20):
        long.add(8, a_lap(60.0))
        short.add(8, a_lap(0.001))
    long.add(8, a_lap(120.0))
    assert long.means().seconds < 66.0, "one of many"
    for _ in range(100):
        short.add(8, a_lap(0.002))
    assert short.means().seconds < 0.0019, "a tenth of a second is no time"


def test_a_loss_that_is_no_number_leaves_the_line_readable() -> None:
    lines: list[bytes] = []
    reports = Reports(lines.append)
    reports.add(3, float("nan"), 8, generation=1, rank=0)
    reports.close()
    reported = json.loads(lines[0], parse_constant=_refuse)["reports"]
    assert [{**report, "at": 1.0} for report in reported] == [
        {"step": 3, "loss": None, "samples": 8, "at": 1.0, "nonfinite": True}
    ]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


async def test_a_real_run_tells_its_true_gradient_bytes_and_where_its_time_went(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=20, compute_s=0.04)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(2)
        await job.wait_finished()
        reported = [trainer.measured for trainer in job.trainers]
    assert len(reported) == 2
    true_bytes = sum(parameter.numel() * 4 for parameter in model_of(recipe.width).parameters())
    for measured in reported:
        assert {(each["gradient_bytes"], each["global_batch"]) for each in measured} == {(true_bytes, recipe.batch)}
        last = measured[-1]
        assert (last["steps"], last["samples"]) == (recipe.steps - 1, recipe.batch / 2)
        assert last["computed_s"] >= recipe.compute_s / 2
        assert last["waited_s"] > 0
        assert last["seconds"] >= last["computed_s"] + last["waited_s"] - 0.001


async def test_steps_through_a_loss_are_not_measured_and_those_after_it_are(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=30, compute_s=0.05)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(2)
        survivor, victim = job.members
        job.hold_before(10)
        await job.wait_held()
        victim.kill()
        job.hold_before(None)
        await job.wait_finished()
    last = survivor.measured[-1]
    assert 0 < last["steps"] <= recipe.steps - 2, "neither the first, nor the one in which the other was lost"
    assert last["samples"] > recipe.batch / 2, "some of them with the whole batch"

"""Admission of a joining rank: its requests, and its rest after a refusal."""

from pathlib import Path

from tests.sdk.live_job import LiveJob
from tests.sdk.test_run import check
from tests.sdk.trainee import DRIFTS, Recipe
from tradewind.sdk.joining import Question, refused


def test_a_joining_worker_asks_again_what_all_must_know_after_the_next_sum() -> None:
    question = Question()
    assert question.at(5, lambda: 50) == (5, 50)
    assert question.at(5, lambda: 51) == (5, 50)
    assert question.at(6, lambda: 60) == (5, 50)


def test_what_was_forgotten_since_is_asked_again() -> None:
    question = Question()
    assert question.at(5, lambda: 50) == (5, 50)
    assert question.at(7, lambda: 70) == (7, 70)


async def test_a_joining_rank_with_another_state_is_refused_and_rests_longer_each_time(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=150, compute_s=0.04)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(2)
        [joining_worker] = await job.enlarge({DRIFTS: "1"})
        reasons: list[str] = []
        for _ in range(2):
            await job.wait_until(joining_worker.is_resting, "it is refused")
            assert joining_worker.status is not None
            reasons.append(joining_worker.status.waits)
            if len(reasons) == 2:
                job.scale(2)
            await job.wait_until(
                lambda: not joining_worker.is_resting() or not joining_worker.alive, "it waits again to join"
            )
        assert reasons == [refused(1.0), refused(2.0)]
        assert reasons[0] != reasons[1]
        await job.wait_finished()
        assert job.worlds == [("start", 2), *[("planned", 3), ("repair", 2)] * 2]
    check(tmp_path, recipe, finishers=2)

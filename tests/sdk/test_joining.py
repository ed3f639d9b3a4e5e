"""What a joiner asks those that have the state, and what it does when that of its own is another."""

from pathlib import Path

from tests.sdk.live_job import LiveJob
from tests.sdk.test_run import check
from tests.sdk.trainee import DRIFTS, Recipe
from tradewind.sdk.joining import Question


def test_a_joiner_asks_again_what_all_must_know_after_the_next_sum() -> None:
    question = Question()
    assert question.at(5, lambda: 50) == (5, 50)
    assert question.at(5, lambda: 51) == (5, 50)
    assert question.at(6, lambda: 60) == (5, 50)


def test_what_was_forgotten_since_is_asked_anew() -> None:
    question = Question()
    assert question.at(5, lambda: 50) == (5, 50)
    assert question.at(7, lambda: 70) == (7, 70)


async def test_one_that_does_something_else_is_kept_out_and_rests_longer_each_time(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=150, compute_s=0.04)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(2)
        [newcomer] = await job.enlarge({DRIFTS: "1"})
        told: list[str] = []
        for _ in range(2):
            await job.until(newcomer.is_resting, "it is refused")
            assert newcomer.status is not None
            told.append(newcomer.status.waits)
            if len(told) == 2:
                job.scale(2)
            await job.until(lambda: not newcomer.is_resting() or not newcomer.alive, "it waits again to be taken in")
        why = (
            "after the same step this worker's state is not that of the others: does it run the same script, "
            "with the same scheduler and the same update? It tries again in"
        )
        assert told == [f"{why} 1 s", f"{why} 2 s"]
        await job.finished()
        assert job.worlds == [("start", 2), *[("planned", 3), ("repair", 2)] * 2]
    check(tmp_path, recipe, finishers=2)

"""A demonstration that went well, as facts."""

from messages.api import ProgressLine
from messages.ids import Generation, Rank, WorkerId
from messages.worlds import RankProgress
from tradewind.cli.demo.facts import Facts, Formed, Kill, Promise

BATCH = 48
FIRST, SMALLER, FULL_AGAIN = Generation(1), Generation(2), Generation(3)


def trained(generation: int, workers: str, steps: range, *, from_s: float, loss: float = 2.0) -> list[ProgressLine]:
    """All of the workers completed these steps, a tenth of a second each."""
    holders = workers.split()
    return [
        ProgressLine(
            at=from_s,
            worker=WorkerId(worker),
            generation=Generation(generation),
            ranks=(
                RankProgress(
                    rank=Rank(rank),
                    first_step=steps[0],
                    last_step=steps[-1],
                    loss=loss,
                    samples=len(steps) * BATCH // len(holders),
                    first_at=from_s,
                    last_at=from_s + 0.1 * (len(steps) - 1),
                ),
            ),
        )
        for rank, worker in enumerate(holders)
    ]


A_KILL = Kill(worker=WorkerId("w2"), rank=Rank(1), generation=FIRST, step=23, at=103.0)


def a_run(*, kills: tuple[Kill, ...] = (A_KILL,), progress: list[ProgressLine] | None = None) -> Facts:
    """Four workers, one killed after step 23, a smaller world, a replacement, 60 steps in the end."""
    told = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(20, 36), from_s=104.0, loss=3.0),
        *trained(3, "w1 w3 w4 w5", range(30, 60), from_s=108.0, loss=2.0),
    ]
    return Facts(
        promise=Promise(steps=60, workers=4, global_batch=BATCH, checkpoint_every=10),
        phase="succeeded",
        why="all ranks exited with 0",
        progress=tuple(told if progress is None else progress),
        formed=(
            Formed(FIRST, 4, "4 workers ready"),
            Formed(SMALLER, 3, "w2 was lost"),
            Formed(FULL_AGAIN, 4, "w5 joined"),
        ),
        kills=kills,
        total_s=12.3,
    )

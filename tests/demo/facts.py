"""The facts of a successful demonstration."""

from messages.api import ProgressLine
from messages.ids import Generation, Rank, WorkerId
from messages.worlds import Entry, RankProgress
from tradewind.demo.facts import Facts, Formed, Kill, Promise
from tradewind.demo.timeline import Moment

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


def traced(generation: int, pids: str, steps: range, *, from_s: float, what: str = "step") -> list[Moment]:
    """The traces of these steps: rank 0 is the first of these processes."""
    return [
        Moment(from_s + 0.1 * nth, what, Rank(rank), Generation(generation), step, int(pid))
        for nth, step in enumerate(steps)
        for rank, pid in enumerate(pids.split())
    ]


A_KILL = Kill(worker=WorkerId("w2"), rank=Rank(1), generation=FIRST, step=23, at=103.0)


WRITTEN = (
    *traced(1, "1 2 3 4", range(24), from_s=100.0),
    *traced(2, "1 3 4", range(24, 36), from_s=102.5),
    *traced(3, "1 3 4", range(36, 37), from_s=103.72),
    Moment(103.73, "active", Rank(3), FULL_AGAIN, 36, 5),
    *traced(3, "1 3 4 5", range(37, 60), from_s=103.82),
)
"""The third world has a joining worker, which takes its share from step 37 on."""


def a_run(
    *,
    kills: tuple[Kill, ...] = (A_KILL,),
    progress: list[ProgressLine] | None = None,
    written: tuple[Moment, ...] = WRITTEN,
) -> Facts:
    """Four workers, one killed after step 23, a smaller world, a replacement, 60 steps in the end."""
    reported = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(24, 36), from_s=102.5, loss=3.0),
        *trained(3, "w1 w3 w4 w5", range(36, 60), from_s=103.7, loss=2.0),
    ]
    return Facts(
        promise=Promise(steps=60, workers=4, global_batch=BATCH, checkpoint_every=10),
        phase="succeeded",
        why="all ranks exited with 0",
        progress=tuple(reported if progress is None else progress),
        traced=written,
        certificate="60 steps, 2,880 samples: 0 lost, 0 repeated",
        formed=(
            Formed(FIRST, 4, "4 workers ready"),
            Formed(SMALLER, 3, "w2 was lost", Entry.REPAIR),
            Formed(FULL_AGAIN, 4, "w5 joined", Entry.PLANNED),
        ),
        kills=kills,
        total_s=12.3,
    )

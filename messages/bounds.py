"""Bounds on a worker's numbers. A message outside of them is ignored.

Anybody who can publish on the bus can write in a worker's name, so numbers that no honest worker can have are ignored.
Accepted numbers are so small that all numbers computed from them can be stored and read again: stored numbers end at
2**53 (`messages.ids.Counted`).
"""

from collections.abc import Iterator

from messages.ids import Generation
from messages.workers import WorkerStatus
from messages.worlds import Progress, RankProgress

GENERATIONS_AHEAD = 1000
"""Generations by which a worker may be ahead of the job. It may have heard of generations that a master could not save
before it died: one for each such master, and one more for a world that broke. The rest is for a bus that was restored
from a backup."""
SEQ_AHEAD = 1_000_000
"""Statuses by which a worker may be ahead. At ten statuses a second, this is more than a day of silence."""
NUMBER_AT_MOST = 2**48
"""Bound on steps, samples and pids: a step each microsecond for nine years."""
STEP_AT_MOST_S = 86_400.0
"""Seconds of one step. A stop waits for twice the longest step."""
NOTICE_AT_MOST_S = 7 * 86_400.0
"""Seconds of a notice that a worker may report. Clouds announce the end of a machine seconds to hours before."""


def doubt(status: WorkerStatus, *, generation: Generation, seq: int) -> str:
    """Returns why a status is impossible; empty if it is not. `generation` is the job's highest, `seq` the newest.

    A job of generation 0 is new or has lost its record, so its generations are not checked."""
    highest = max(_generations(status))
    if generation and highest > generation + GENERATIONS_AHEAD:
        return f"it names generation {highest}, and the job is at {generation}"
    if seq >= 0 and status.seq > seq + SEQ_AHEAD:
        return f"it is message {status.seq} of the worker, and the newest was {seq}"
    largest = max(highest, *_numbers(status))
    if largest > NUMBER_AT_MOST:
        return f"it contains the number {largest}"
    return doubt_notice(status.notice_s or 0.0)


def doubt_notice(remaining_s: float) -> str:
    if remaining_s <= NOTICE_AT_MOST_S:
        return ""
    return f"it announces the end of its node in {remaining_s:.0f} s"


def doubt_progress(report: Progress, *, generation: Generation) -> str:
    """Returns why reported progress is impossible; empty if it is not."""
    if generation and report.generation > generation + GENERATIONS_AHEAD:
        return f"it names generation {report.generation}, and the job is at {generation}"
    largest = max((report.generation, *(number for rank in report.ranks for number in _numbers_of(rank))))
    if largest > NUMBER_AT_MOST:
        return f"it contains the number {largest}"
    longest_s = max((rank.measured.longest_s for rank in report.ranks if rank.measured is not None), default=0.0)
    return f"it names a step of {longest_s:.0f} s" if longest_s > STEP_AT_MOST_S else ""


def _numbers_of(rank: RankProgress) -> Iterator[int]:
    yield from (rank.last_step, rank.first_step, rank.samples)
    if rank.counted is not None:
        yield from (rank.counted.nonfinite, rank.counted.skipped)


def _generations(status: WorkerStatus) -> Iterator[int]:
    yield status.generation
    for fallen in status.fallen:
        yield fallen.generation
    for trainer in status.trainers:
        yield from (trainer.generation, trainer.parked, trainer.broken, trainer.parking)


def _numbers(status: WorkerStatus) -> Iterator[int]:
    yield from (status.seq, status.pid, status.step or 0, status.checkpoints)
    if status.checkpoint is not None:
        yield status.checkpoint.step or 0
    for trainer in status.trainers:
        yield from (trainer.local_rank, trainer.done, trainer.waiting or 0, trainer.located)
        for first, last in trainer.held:
            yield from (first, last)
        proof = trainer.certificate
        if proof is not None:
            yield from (proof.steps, proof.samples, proof.lost, proof.repeated, proof.wrong, proof.recomputed)
            yield from (proof.nonfinite, proof.skipped)

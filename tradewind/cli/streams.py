"""The lines of the API's streams: one JSON object each."""

from msgspec import Struct, field

from messages.ids import Generation, Rank, WorkerId
from messages.jobs import Scalar
from messages.worlds import RankProgress

END_KINDS = {"job_succeeded": "succeeded", "job_failed": "failed", "job_stopped": "stopped"}
"""The kinds of a job's last event, and the phase that each tells."""


class LogLine(Struct, frozen=True, omit_defaults=True):
    at: float
    """Unix seconds of the worker that sent it; lines sent together share it."""
    rank: Rank
    generation: Generation
    line: str
    stderr: bool = False


class SeenEvent(Struct, frozen=True, omit_defaults=True):
    at: float
    scope: str
    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)

    @property
    def ends_job(self) -> bool:
        return self.kind in END_KINDS


class SeenProgress(Struct, frozen=True):
    at: float
    worker: WorkerId
    generation: Generation
    ranks: tuple[RankProgress, ...]

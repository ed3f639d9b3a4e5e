"""What a benchmark and its player processes say to each other: JSON, one object a line, one answer to a question."""

from msgspec import Struct

from messages.ids import ClusterName, Generation, JobName, WorkerId


class ClusterToPlay(Struct, frozen=True):
    name: ClusterName
    region: str


class Cast(Struct, frozen=True):
    """What a player process plays. Its only argument."""

    port: int
    """Of the NATS server."""
    clusters: tuple[ClusterToPlay, ...]
    of_job_at_most: int
    """Workers of one job that a cluster takes."""
    sdk: bool
    replace_s: float
    """Seconds until a replacement of a lost worker speaks."""
    began_s: float
    """When the first step of SDK trainers began, by the monotonic clock."""


class Look(Struct, frozen=True, tag=True):
    """How far is everybody?"""


class LookAtWorlds(Struct, frozen=True, tag=True):
    """Who has received the worlds of a job that are newer than `after`?"""

    job: JobName
    after: Generation
    without: WorkerId


class Lose(Struct, frozen=True, tag=True):
    """End one worker of the job without notice."""

    job: JobName


Question = Look | LookAtWorlds | Lose


class JobSeen(Struct, frozen=True):
    workers: int
    """Connected."""
    ready: dict[Generation, int]
    """Workers that are ready, by generation."""


class Seen(Struct, frozen=True):
    jobs: dict[JobName, JobSeen]
    raw_number: int
    raw_heard: int
    raw_last_s: float
    bytes_in: int
    """To workers and, of heartbeats, to controllers."""
    bytes_out: int
    """Payloads of workers."""
    heartbeats: int
    """Sent by workers."""
    heartbeats_heard: int
    """By their controllers."""
    facts: int
    rejected: int
    """Messages that no worker could decode."""
    connections_lost: int
    errors: tuple[str, ...]


class WorldSeen(Struct, frozen=True):
    generation: Generation
    members: int
    own: int
    """Members that this process plays."""
    heard: int
    """Those of them that received the assignment."""
    last_s: float
    """When the last one did, by the monotonic clock."""


class Lost(Struct, frozen=True):
    worker: WorkerId
    at_s: float
    """When its connection was closed, by the monotonic clock."""
    generation: Generation
    """Of the world that it was a member of."""

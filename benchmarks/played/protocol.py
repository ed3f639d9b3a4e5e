"""Messages between a benchmark and its player processes: JSON, one object per line, one answer per question."""

from msgspec import Struct

from messages.ids import ClusterName, Generation, JobName, WorkerId


class ClusterToPlay(Struct, frozen=True):
    name: ClusterName
    region: str


class Cast(Struct, frozen=True):
    """What a player process plays; its only argument."""

    port: int
    """Port of the NATS server."""
    clusters: tuple[ClusterToPlay, ...]
    of_job_at_most: int
    """Most workers of one job in a cluster."""
    sdk: bool
    replace_s: float
    """Seconds until a replacement of a lost worker connects."""
    began_s: float
    """Time at which the first step of SDK trainers began, on the monotonic clock."""


class Look(Struct, frozen=True, tag=True):
    """Request the state of all workers."""


class LookAtWorlds(Struct, frozen=True, tag=True):
    """Request which workers have received the worlds of a job that are newer than `after`."""

    job: JobName
    after: Generation
    without: WorkerId


class Lose(Struct, frozen=True, tag=True):
    """End one worker of the job without notice."""

    job: JobName


Question = Look | LookAtWorlds | Lose


class JobSeen(Struct, frozen=True):
    workers: int
    """Connected workers."""
    ready: dict[Generation, int]
    """Ready workers, by generation."""


class Seen(Struct, frozen=True):
    jobs: dict[JobName, JobSeen]
    raw_number: int
    raw_heard: int
    raw_last_s: float
    bytes_in: int
    """Bytes to workers and, of heartbeats, to controllers."""
    bytes_out: int
    """Bytes of payloads from workers."""
    heartbeats: int
    """Heartbeats sent by workers."""
    heartbeats_heard: int
    """Heartbeats received by their controllers."""
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
    """Own members that received the assignment."""
    last_s: float
    """Time at which the last one did, on the monotonic clock."""


class Lost(Struct, frozen=True):
    worker: WorkerId
    at_s: float
    """Time at which its connection was closed, on the monotonic clock."""
    generation: Generation
    """Generation of its world."""

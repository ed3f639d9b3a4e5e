"""The envelope of every message, and the kinds of messages."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Raw, Struct

from messages import clusters, compact_worlds, events, workers, world_deltas, worlds
from messages.ids import Epoch, Generation

VERSION = 1
"""The major version. Additive changes do not change it. A receiver drops messages of a newer version."""

Message = (
    clusters.ClusterHeartbeat
    | clusters.KeepWorkers
    | clusters.RemoveWorkers
    | clusters.ReportWhole
    | clusters.Answer
    | workers.WorkerHeartbeat
    | workers.WorkerJoined
    | workers.WorkerReady
    | workers.WorkerParking
    | workers.WorkerParked
    | workers.WorkerPosition
    | workers.WorkerSwitched
    | workers.WorkerExited
    | workers.WorkerPeerLost
    | workers.WorkerLeft
    | workers.WorkerNoticed
    | workers.StopWorker
    | worlds.Assignment
    | world_deltas.AssignmentDelta
    | compact_worlds.StoredAssignment
    | worlds.Invite
    | compact_worlds.StoredInvite
    | worlds.Halt
    | worlds.Locate
    | worlds.EndStalled
    | worlds.Release
    | worlds.GatheredProgress
    | worlds.Progress
    | worlds.LogLines
    | events.Event
)

KINDS: dict[str, type[Message]] = {
    "cluster.heartbeat": clusters.ClusterHeartbeat,
    "cluster.keep_workers": clusters.KeepWorkers,
    "cluster.remove_workers": clusters.RemoveWorkers,
    "cluster.report_whole": clusters.ReportWhole,
    "worker.heartbeat": workers.WorkerHeartbeat,
    "worker.joined": workers.WorkerJoined,
    "worker.ready": workers.WorkerReady,
    "worker.parking": workers.WorkerParking,
    "worker.parked": workers.WorkerParked,
    "worker.position": workers.WorkerPosition,
    "worker.switched": workers.WorkerSwitched,
    "worker.exited": workers.WorkerExited,
    "worker.peer_lost": workers.WorkerPeerLost,
    "worker.left": workers.WorkerLeft,
    "worker.notice": workers.WorkerNoticed,
    "worker.stop": workers.StopWorker,
    "job.assignment": worlds.Assignment,
    "job.assignment_delta": world_deltas.AssignmentDelta,
    "job.assignment_stored": compact_worlds.StoredAssignment,
    "job.invite": worlds.Invite,
    "job.invite_stored": compact_worlds.StoredInvite,
    "job.halt": worlds.Halt,
    "job.locate": worlds.Locate,
    "job.end_stalled": worlds.EndStalled,
    "job.release": worlds.Release,
    "job.progress": worlds.GatheredProgress,
    "worker.progress": worlds.Progress,
    "job.log": worlds.LogLines,
    "event": events.Event,
    "answer": clusters.Answer,
}


class Envelope(Struct, frozen=True, omit_defaults=True):
    v: int
    kind: str
    at: Annotated[datetime, Meta(tz=True)]
    """Wall time of the sender, for people and the ledger, never for liveness."""
    sender: str
    id: str
    """Also the JetStream deduplication id."""
    body: Raw
    epoch: Epoch | None = None
    """The revision of the leader's lease, in messages of a leader."""
    generation: Generation | None = None
    caused_by: str | None = None
    """The id of the message that caused this one."""
    cause: str | None = None
    """Kind and sender of that message, for people."""

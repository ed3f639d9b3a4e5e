"""Short names for long things, and a controller core that is driven event by event, with effects that succeed."""

from dataclasses import dataclass, field

from msgspec import structs

from agents.cluster import invariants
from agents.cluster.decide import decide
from agents.cluster.effects import ClusterEffect, EndPlace, SaveKnown, SendTopology, StartPlace
from agents.cluster.events import (
    ClusterEvent,
    KeepAsked,
    KnownSaved,
    PlaceEnded,
    PlaceStarted,
    RemoveAsked,
    Ticked,
    WorkerHeard,
)
from agents.cluster.reports import split, whole_state
from agents.cluster.state import ClusterState, Known, Place, Rules, new_cluster
from agents.cluster.topology import what_matters
from controlplane.jobs.cluster_views import Changes, ClusterView
from messages.clusters import (
    Answer,
    ClusterHeartbeat,
    KeepWorkers,
    Presence,
    RemoveWorkers,
    WorkerObservation,
    WorkerTemplate,
)
from messages.ids import ClusterName, Epoch, Generation, JobName, WorkerId
from messages.workers import WorkerPhase, WorkerStatus

LOCAL = ClusterName("local")
JOB = JobName("story")
OTHER_JOB = JobName("other")


def a_status(
    worker: str,
    seq: int = 1,
    phase: WorkerPhase = WorkerPhase.IDLE,
    *,
    job: JobName = JOB,
    cluster: ClusterName = LOCAL,
    generation: int = 0,
    step: int | None = None,
    notice_s: float | None = None,
) -> WorkerStatus:
    return WorkerStatus(
        worker=WorkerId(worker),
        cluster=cluster,
        job=job,
        seq=seq,
        phase=phase,
        generation=Generation(generation),
        step=step,
        notice_s=notice_s,
    )


def keep(count: int, job: JobName = JOB, template: WorkerTemplate | None = None) -> KeepWorkers:
    return KeepWorkers(job, count, template or WorkerTemplate())


@dataclass
class Story:
    """A controller core whose saves and starts succeed at once, unless the story says otherwise."""

    state: ClusterState
    now_s: float = 100.0
    effects: list[ClusterEffect] = field(default_factory=list)
    saves: bool = True
    starts: bool = True
    wake_at_s: float | None = None
    answer: Answer | None = None
    """The answer to the last command."""
    view: ClusterView = field(default_factory=lambda: ClusterView(LOCAL))
    """The state that a master builds from the reports."""
    topologies: list[ClusterHeartbeat] = field(default_factory=list)
    """The whole state after each report, as a master knows it."""
    _seqs: dict[str, int] = field(default_factory=dict)

    def happens(self, *events: ClusterEvent) -> "Story":
        for event in events:
            decision = decide(self.state, event)
            broken = invariants.check(self.state, decision.state)
            assert not broken, f"{event} broke: {broken}"
            self.state, self.wake_at_s = decision.state, decision.wake_at_s
            self.answer = next(iter(decision.state.answers.values()), self.answer)
            self.effects += decision.effects
            for effect in decision.effects:
                if isinstance(effect, SendTopology):
                    self.hear_report(effect.heartbeat)
                if self.saves and isinstance(effect, SaveKnown):
                    self.happens(KnownSaved(self.now_s))
                if self.starts and isinstance(effect, StartPlace):
                    self.happens(PlaceStarted(self.now_s, effect.uid, 1000 + len(self.effects), "birth"))
        return self

    def hear_report(self, report: ClusterHeartbeat) -> None:
        """Receives a report in parts of one entry each, and checks that the master's view is the controller's state."""
        heard = [self.view.take(part, self.now_s) for part in split(report, bytes_at_most=0)]
        assert isinstance(heard[-1], Changes), heard
        self.topologies.append(self.view.topology(self.now_s))
        assert reported(self.topologies[-1]) == reported(whole_state(self.state, self.now_s))

    def after(self, seconds: float, *, all_beat: bool = False) -> "Story":
        """Lets time pass. The core wakes when it wants to; with `all_beat`, heartbeats come every 0.5 s."""
        until_s, beat_at_s = self.now_s + seconds, self.now_s
        while True:
            next_s = min(self.wake_at_s or until_s, beat_at_s if all_beat else until_s)
            if next_s >= until_s:
                break
            self.now_s = max(self.now_s, next_s)
            if all_beat and self.now_s >= beat_at_s:
                beat_at_s += 0.5
                self.all_speak()
            else:
                self.happens(Ticked(self.now_s))
        self.now_s = until_s
        return self.happens(Ticked(until_s))

    def is_paused(self, seconds: float) -> "Story":
        """Lets time pass without waking the controller, as with SIGSTOP."""
        self.now_s += seconds
        return self.happens(Ticked(self.now_s))

    def keeps(self, count: int, job: JobName = JOB, epoch: int | None = 1) -> "Story":
        lease = None if epoch is None else Epoch(epoch)
        return self.happens(KeepAsked(self.now_s, keep(count, job), lease))

    def removes(self, *workers: str, job: JobName = JOB, epoch: int = 1) -> "Story":
        command = RemoveWorkers(job, tuple(map(WorkerId, workers)), "put out")
        return self.happens(RemoveAsked(self.now_s, command, Epoch(epoch)))

    def speaks(self, uid: str, phase: WorkerPhase = WorkerPhase.IDLE, *, job: JobName = JOB) -> "Story":
        seq = self._seqs[uid] = self._seqs.get(uid, 0) + 1
        return self.happens(WorkerHeard(self.now_s, a_status(f"{uid}-aaaa", seq, phase, job=job)))

    def all_speak(self) -> "Story":
        for place in tuple(self.state.places.values()):
            if place.pid and place.left_at_s is None:
                self.speaks(place.uid, job=place.job)
        return self

    def ends(self, uid: str, why: str = "its process was ended by SIGKILL") -> "Story":
        return self.happens(PlaceEnded(self.now_s, uid, why))

    def forgets_effects(self) -> "Story":
        self.effects.clear()
        self.topologies.clear()
        return self

    @property
    def uids(self) -> list[str]:
        return list(self.state.places)

    @property
    def places(self) -> list[Place]:
        return list(self.state.places.values())

    @property
    def started(self) -> list[str]:
        return [effect.uid for effect in self.effects if isinstance(effect, StartPlace)]

    @property
    def ended(self) -> list[str]:
        return [effect.uid for effect in self.effects if isinstance(effect, EndPlace)]

    @property
    def reports(self) -> list[ClusterHeartbeat]:
        return [effect.heartbeat for effect in self.effects if isinstance(effect, SendTopology)]

    @property
    def saved(self) -> Known:
        known = self.state.saving.saved
        assert known is not None, "nothing was saved"
        return known

    def observation(self, worker: str) -> WorkerObservation | None:
        """The newest observation of the worker."""
        known = self.view.workers.get(WorkerId(worker))
        return self.view.now(known, self.now_s) if known is not None else None

    def presence(self, worker: str) -> Presence | None:
        observation = self.observation(worker)
        return observation.presence if observation is not None else None


def reported(topology: ClusterHeartbeat) -> object:
    """The parts of a state that must reach the master; counters that change with each heartbeat may come later."""
    observations = {
        observation.worker: structs.replace(
            observation,
            silent_s=0.0,
            status=what_matters(observation.status) if observation.status is not None else None,
            start_failure=structs.replace(observation.start_failure, for_s=0.0)
            if observation.start_failure is not None
            else None,
        )
        for observation in topology.workers
    }
    nodes = {
        node.node: structs.replace(node, notice_s=None if node.notice_s is None else 0.0) for node in topology.nodes
    }
    return topology.seq, observations, nodes, topology.keeps


def a_controller(*, known: Known | None = None, incarnation: str = "abc123", rules: Rules | None = None) -> Story:
    return Story(new_cluster(LOCAL, incarnation, "here", 100.0, known, rules)).happens(Ticked(100.0))


def a_controller_with(workers: int, *, rules: Rules | None = None) -> Story:
    """A controller whose workers have all joined."""
    return a_controller(rules=rules).keeps(workers).after(0.1).all_speak().after(0.1).forgets_effects()


def hears(story: Story, worker: str, seq: int = 1, phase: WorkerPhase = WorkerPhase.IDLE) -> Story:
    """A word of any worker, also of one that the controller did not start."""
    return story.happens(WorkerHeard(story.now_s, a_status(worker, seq, phase)))

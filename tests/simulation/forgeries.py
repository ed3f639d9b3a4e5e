"""Attacks on the bus: forged messages in a worker's name, and deletions.

They must neither break a record nor cost a worker anything. They have their own random stream, so that all other faults
of a seed stay the same.
"""

import random
from functools import partial
from typing import TYPE_CHECKING

from agents.cluster import events as cluster_events
from controlplane.job import events as job_events
from messages.ids import Generation
from messages.workers import TrainerStatus, WorkerPhase, WorkerStatus
from tests.simulation.actors import WorkerActor

if TYPE_CHECKING:
    from tests.simulation.system import System

FORGED = "message forged"
RECORD_LOST = "record deleted"
ABSURD = 2**53
AT_MOST = 4


class Forger:
    def __init__(self, system: "System") -> None:
        self._system = system
        self._chance = random.Random(f"forged {system.clockwork.seed}")

    def plan(self) -> None:
        clockwork = self._system.clockwork
        for _ in range(self._chance.randint(0, AT_MOST)):
            clockwork.after(self._moment_s(), self._forge)
        if self._chance.random() < 0.5:
            clockwork.after(self._moment_s(), self._lose_record)

    def _moment_s(self) -> float:
        return self._chance.uniform(0.5, self._system.clockwork.faults.until_s - self._system.clockwork.now_s)

    def _lose_record(self) -> None:
        """Deletes records; leader and controller see that they are missing, and write them again."""
        clockwork = self._system.clockwork
        for term in self._system.terms:
            if term.alive and term.job is not None:
                clockwork.made[RECORD_LOST] += 1
                clockwork.tell(f"FAULT: {RECORD_LOST}")
                term.hear(partial(job_events.RecordLost, clockwork.now_s))
        for controller in self._system.controllers.values():
            controller.post(cluster_events.KnownLost(clockwork.now_s))

    def _forge(self) -> None:
        alive = [worker for worker in self._system.workers.values() if worker.alive]
        if not alive:
            return
        clockwork, worker = self._system.clockwork, self._chance.choice(alive)
        status = self._status(worker)
        clockwork.made[FORGED] += 1
        clockwork.tell(f"FAULT: {FORGED} in the name of {worker.id}: {status.phase}, generation {status.generation}")
        for term in self._system.terms:
            if term.alive:
                term.hear(partial(job_events.WorkerSpoke, clockwork.now_s, status))
        if self._chance.random() < 0.5:
            worker.controller.post(cluster_events.WorkerHeard(clockwork.now_s, status))

    def _status(self, worker: WorkerActor) -> WorkerStatus:
        place = worker.controller.state.places.get(worker.uid)
        newest = place.status.seq if place is not None and place.status is not None else 0
        absurd = Generation(self._chance.choice((ABSURD, ABSURD - 1, 2**49)))
        trainer = TrainerStatus(0, generation=absurd, parked=absurd, done=ABSURD, active=True)
        return WorkerStatus(
            worker=worker.id,
            cluster=worker.state.identity.cluster,
            job=worker.state.identity.job,
            seq=self._chance.choice((newest + 1, ABSURD)),
            phase=self._chance.choice((WorkerPhase.PARKED, WorkerPhase.READY, WorkerPhase.IDLE)),
            generation=self._chance.choice((absurd, Generation(0))),
            trainers=(trainer,),
        )

"""A process that plays cluster-controllers and their workers: `python -m benchmarks.played.player <cast as JSON>`.

It answers the questions on its standard input until that ends.
"""

import asyncio
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, assert_never

import msgspec

from agents.worker.stored import read_stored
from benchmarks.played.cluster import CONNECTING_AT_ONCE, PlayedCluster, start_cluster
from benchmarks.played.protocol import Cast, JobSeen, Look, LookAtWorlds, Lose, Lost, Question, Seen, WorldSeen
from benchmarks.played.worker import HEARTBEAT_S, PROGRESS_S, SLOTS, Company, PlayedWorker
from messages.compact_worlds import WorldReference
from messages.ids import ClusterName, Generation, JobName
from messages.subjects import STATE_BUCKET
from messages.workers import WorkerPhase
from runtime.logs import configure
from runtime.process import Stop, run

_QUESTION_BYTES: Final = 1 << 20


class Player:
    def __init__(self, company: Company) -> None:
        self._company = company
        self._clusters: dict[ClusterName, PlayedCluster] = {}

    async def play(self, cast: Cast) -> None:
        async with asyncio.TaskGroup() as tasks:
            connecting = asyncio.Semaphore(CONNECTING_AT_ONCE)
            for cluster in cast.clusters:
                self._clusters[cluster.name] = await start_cluster(
                    self._company,
                    cluster.name,
                    cluster.region,
                    cast.port,
                    of_job_at_most=cast.of_job_at_most,
                    replace_s=cast.replace_s,
                    tasks=tasks,
                    connecting=connecting,
                )
            bucket = await next(iter(self._clusters.values())).bus.bucket(STATE_BUCKET)

            async def fetch(job: JobName, world: WorldReference) -> None:
                self._company.fetched(world, await read_stored(bucket, job, world, self._company.held))

            self._company.begin_fetch = lambda job, world: _begin(tasks, fetch(job, world))
            tasks.create_task(self._speak(HEARTBEAT_S, PlayedWorker.beat), name="heartbeats")
            if cast.sdk:
                tasks.create_task(self._speak(PROGRESS_S, PlayedWorker.report), name="progress")
            await self._answer_all()
            os._exit(0)  # Thousands of connections need not be closed one by one.

    async def _speak(self, every_s: float, speak: Callable[[PlayedWorker], None]) -> None:
        """Calls `speak` for each worker once in `every_s`, evenly spread; a late process skips no worker."""
        began_s, done = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began_s) / every_s * SLOTS)
            for slot in range(max(done, due - SLOTS), due):
                for worker in self._company.slots[slot % SLOTS]:
                    speak(worker)
            done = due
            await asyncio.sleep(every_s / SLOTS)

    async def _answer_all(self) -> None:
        reader = asyncio.StreamReader(_QUESTION_BYTES)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        _say(self._look())
        while line := await reader.readline():
            _say(self._answer(msgspec.json.decode(line, type=Question)))

    def _answer(self, question: Question) -> object:
        match question:
            case Look():
                return self._look()
            case LookAtWorlds(job, after, without):
                worlds = self._company.worlds.get(job, {}).values()
                return [
                    WorldSeen(world.generation, len(world.places), world.own, world.heard, world.last_s)
                    for world in worlds
                    if world.generation > after and without not in world.places
                ]
            case Lose(job):
                return self._lose(job)
            case _:
                assert_never(question)

    def _look(self) -> Seen:
        company = self._company
        workers: Counter[JobName] = Counter()
        ready: dict[JobName, Counter[Generation]] = {}
        for worker in company.workers.values():
            status = worker.status
            workers[status.job] += 1
            if status.phase is WorkerPhase.READY:
                ready.setdefault(status.job, Counter())[status.generation] += 1
        return Seen(
            jobs={job: JobSeen(count, dict(ready.get(job, {}))) for job, count in workers.items()},
            raw_number=company.raw_number,
            raw_heard=company.raw_heard,
            raw_last_s=company.raw_last_s,
            bytes_in=company.traffic.bytes_in,
            bytes_out=company.traffic.bytes_out,
            heartbeats=company.heartbeats,
            heartbeats_heard=sum(cluster.bus.heard for cluster in self._clusters.values()),
            facts=company.facts,
            rejected=company.rejected,
            connections_lost=company.traffic.lost,
            errors=tuple(company.traffic.errors[:3]),
        )

    def _lose(self, job: JobName) -> Lost | None:
        members = (
            worker.status
            for worker in self._company.workers.values()
            if worker.status.job == job and worker.status.phase is WorkerPhase.READY
        )
        status = next(members, None)
        if status is None:
            return None
        at_s = time.monotonic()
        self._clusters[status.cluster].places.lose(status.worker)
        return Lost(status.worker, at_s, status.generation)


def _begin(tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
    tasks.create_task(work, name="fetch")


def _say(answer: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


async def _main(_stop: Stop) -> int:
    cast = msgspec.json.decode(sys.argv[1], type=Cast)
    await Player(Company(cast.sdk, cast.began_s)).play(cast)
    return 0


if __name__ == "__main__":
    configure("player")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    raise SystemExit(run(_main))

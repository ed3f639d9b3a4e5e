"""Faults of every kind in any order; when they stop, there are as many workers as were asked for, and nothing else."""

import asyncio
import contextlib
import random

import pytest

from messages import subjects
from messages.clusters import Presence
from messages.ids import WorkerId
from runtime.kubernetes.client import ApiRefused
from tests.conftest import eventual_answer, eventually
from tests.kubernetes.conftest import CLUSTER, Bench

STEPS = 25
WANTED = 3


class Crew:
    """Plays scheduler and kubelets for as long as it runs."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.nodes: set[str] = set()
        self.running: dict[str, str] = {}
        """Nodes of pods."""
        self.workers: dict[str, WorkerId] = {}

    async def run(self) -> None:
        while True:
            with contextlib.suppress(ApiRefused):
                await self._round()
            await asyncio.sleep(0.05)

    async def _round(self) -> None:
        ground, pods = self._bench.ground, await self._bench.ground.pods()
        for name in [name for name in self.running if name not in pods]:
            self._end(name)
        for name, pod in pods.items():
            free = sorted(self.nodes - set(self.running.values()))
            if pod.metadata.deletion_timestamp is not None:
                self._end(name)
                await ground.kill(name)
            elif name not in self.running and pod.spec.node_name is None and free:
                self.running[name] = free[0]
                await ground.run(name, free[0])
                self.workers[name] = self._bench.speak(name)

    def _end(self, name: str) -> None:
        if self.running.pop(name, None) is not None and name in self.workers:
            del self.workers[name]
            self._bench.fall_silent(name)


class Chaos:
    def __init__(self, bench: Bench, crew: Crew, seed: int) -> None:
        self._bench = bench
        self._crew = crew
        self._chance = random.Random(seed)
        self._made = 0
        self._is_cut = False

    async def step(self) -> None:
        faults = (self.lose_node, self.kill_pod, self.crash_pod, self.cut, self.forget, self.restart, self.notice)
        await self._chance.choice(faults)()
        await asyncio.sleep(self._chance.uniform(0.0, 0.25))

    async def add_node(self) -> None:
        self._made += 1
        self._crew.nodes.add(await self._bench.ground.node(f"n{self._made}"))

    async def lose_node(self) -> None:
        if self._crew.nodes:
            node = self._chance.choice(sorted(self._crew.nodes))
            self._crew.nodes.discard(node)
            await self._bench.ground.remove_node(node)
        await self.add_node()

    async def kill_pod(self) -> None:
        for pod in self._any_pod():
            await self._bench.ground.kill(pod)

    async def crash_pod(self) -> None:
        for pod in self._any_pod():
            with contextlib.suppress(ApiRefused):
                await self._bench.ground.exit(pod, 1, "crashed")

    async def notice(self) -> None:
        for pod in self._any_pod():
            with contextlib.suppress(ApiRefused):
                await self._bench.ground.api.delete(f"{self._bench.ground.pods_path}/{pod}", grace_s=5)

    async def cut(self) -> None:
        self._is_cut = not self._is_cut
        self._bench.meddler.cut() if self._is_cut else self._bench.meddler.mend()

    async def forget(self) -> None:
        self._bench.meddler.blind()
        await asyncio.sleep(self._chance.uniform(0.0, 0.2))
        self._bench.meddler.expire()

    async def restart(self) -> None:
        await self._bench.kill()
        if self._chance.random() < 0.5:
            bucket = await self._bench.bus.bucket(subjects.STATE_BUCKET)
            await bucket.delete(subjects.known_key(CLUSTER))
        self._bench.start()

    def stop(self) -> None:
        self._bench.meddler.mend()
        self._bench.meddler.expire()

    def _any_pod(self) -> list[str]:
        running = sorted(self._crew.running)
        return [self._chance.choice(running)] if running else []


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happened_the_wanted_workers_are_there_in_the_end(bench: Bench, seed: int) -> None:
    crew = Crew(bench)
    chaos = Chaos(bench, crew, seed)
    bench.start()
    for _ in range(WANTED + 1):
        await chaos.add_node()
    playing = asyncio.get_running_loop().create_task(crew.run(), name="crew")
    try:
        await eventually(lambda: bench.topologies, what="the controller")
        await bench.keep(WANTED)
        for _ in range(STEPS):
            await chaos.step()
        chaos.stop()
        heard = len(bench.topologies)
        await eventually(lambda: len(bench.topologies) > heard, 40.0, what="the controller after the faults")
        await bench.keep(WANTED)

        async def is_settled() -> bool:
            pods = await bench.ground.pods()
            alive = set(bench.observations(Presence.ALIVE))
            wanted = len(pods) == len(alive) == WANTED and not bench.observations(Presence.STARTING)
            return wanted and alive == {crew.workers.get(pod) for pod in pods}

        await eventual_answer(is_settled, what=f"{WANTED} workers and nothing else", timeout_s=60.0)
        await bench.keep(0)

        async def is_empty() -> bool:
            return not await bench.ground.pods()

        await eventual_answer(is_empty, what="no pod is left of a job that needs none", timeout_s=40.0)
    finally:
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing

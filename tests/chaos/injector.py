"""Performs the faults by process id, and undoes those that must be undone."""

import asyncio
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from runtime import children, proc
from tests.chaos.faults import Fault, Kind, Target
from tests.chaos.forge import forge
from tests.chaos.jobs import Job
from tests.chaos.plain_bus import publish
from tests.chaos.stage import CLUSTERS, Stage
from tests.chaos.watcher import Watcher
from tradewind.local import processes

NOTHING = "nothing to hit"


@dataclass(frozen=True)
class Injected:
    fault: Fault
    at_s: float
    """Seconds of the machine's monotonic clock, as in the trainers' traces."""
    what: str

    @property
    def hit(self) -> bool:
        return self.what != NOTHING


class Injector:
    def __init__(self, stage: Stage, jobs: Mapping[Target, Job], watcher: Watcher) -> None:
        self._stage = stage
        self._jobs = jobs
        self._watcher = watcher
        self._paused: dict[int, list[int]] = {}
        """Stopped processes, by the first of them."""
        self._continuing: set[asyncio.Task[None]] = set()
        self.injected: list[Injected] = []

    async def inject(self, fault: Fault) -> Injected:
        at_s = time.monotonic()
        done = Injected(fault, at_s, await self._perform(fault) or NOTHING)
        self.injected.append(done)
        return done

    def end(self) -> None:
        """Continues all stopped processes."""
        for task in self._continuing:
            task.cancel()
        for root in tuple(self._paused):
            self._continue(root)

    async def _perform(self, fault: Fault) -> str:
        stage = self._stage
        match fault.kind:
            case Kind.KILL_AGENT:
                return self._signal_agents(fault, signal.SIGKILL)
            case Kind.NOTICE:
                return self._signal_agents(fault, signal.SIGTERM)
            case Kind.KILL_MACHINE:
                return self._kill_machines(fault, 1)
            case Kind.KILL_TWO:
                return self._kill_machines(fault, 2)
            case Kind.KILL_HOST:
                return self._kill_below(fault, of_host=True)
            case Kind.KILL_TRAINERS:
                return self._kill_below(fault, of_host=False)
            case Kind.STOP_MACHINE:
                agents = self._chosen(fault, 1)
                return self._pause([agents[0], *children.alive_below(agents[0])], fault.lasts_s) if agents else ""
            case Kind.SLOW_RANK:
                self._jobs[fault.target].order(fault.lasts_s, fault.draw)
                return f"one rank sleeps for {fault.lasts_s} s"
            case Kind.STALL_RANK:
                self._jobs[fault.target].order(0.0, fault.draw)
                return "one rank sleeps for ever"
            case Kind.KILL_LEADER:
                return _named(leader := await stage.leader(), stage.send(leader, signal.SIGKILL))
            case Kind.KILL_CONTROLLER:
                return _named(cluster := _cluster(fault), stage.send(cluster, signal.SIGKILL))
            case Kind.STOP_LEADER:
                return self._pause([stage.pid(await stage.leader())], fault.lasts_s)
            case Kind.STOP_CONTROLLER:
                return self._pause([stage.pid(_cluster(fault))], fault.lasts_s)
            case Kind.RESTART_BUS:
                return _named("nats-server", stage.send("nats-server", signal.SIGTERM))
            case Kind.KILL_BUS:
                return _named("nats-server", stage.send("nats-server", signal.SIGKILL))
            case (
                Kind.FORGE_GARBAGE
                | Kind.FORGE_DEEP_JSON
                | Kind.FORGE_GENERATION
                | Kind.FORGE_UNKNOWN_WORKER
                | Kind.FORGE_CLUSTER
                | Kind.FORGE_OLD_FACT
                | Kind.FORGE_OTHER_JOB
                | Kind.FORGE_EVENT
                | Kind.FORGE_PROGRESS
                | Kind.GARBAGE_KEY
                | Kind.GARBAGE_LEADER
            ):
                return await self._forge(fault)
            case _ as never:
                assert_never(never)

    def _chosen(self, fault: Fault, count: int) -> list[int]:
        """Chooses agents, warm ones first: a fault that hits no training is of little use."""
        agents = self._stage.agents(fault.target)
        random.Random(fault.draw).shuffle(agents)
        return sorted(agents, key=lambda pid: not _trainers(pid))[:count]

    def _signal_agents(self, fault: Fault, number: signal.Signals) -> str:
        agents = self._chosen(fault, 1)
        children.send(agents, number)
        return f"agent {agents[0]}" if agents else ""

    def _kill_machines(self, fault: Fault, count: int) -> str:
        agents = self._chosen(fault, count)
        killed = [processes.kill_tree(agent) for agent in agents]
        return "; ".join(f"agent {tree[0]} and {len(tree) - 1} below it" for tree in killed if tree)

    def _kill_below(self, fault: Fault, *, of_host: bool) -> str:
        agents = self._chosen(fault, 1)
        victims = (_hosts(agents[0]) if of_host else _trainers(agents[0])) if agents else []
        children.send(victims, signal.SIGKILL)
        return f"{'host' if of_host else 'trainers'} {', '.join(map(str, victims))}" if victims else ""

    def _pause(self, tree: list[int], seconds: float) -> str:
        root = tree[0]
        if not root or root in self._paused:
            return ""
        children.send(tree, signal.SIGSTOP)
        self._paused[root] = tree
        task = asyncio.get_running_loop().create_task(self._continue_later(root, seconds), name=f"continue-{root}")
        self._continuing.add(task)
        task.add_done_callback(self._continuing.discard)
        return f"process {root} and {len(tree) - 1} below it, for {seconds} s"

    async def _continue_later(self, root: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._continue(root)

    def _continue(self, root: int) -> None:
        children.send(self._paused.pop(root, []), signal.SIGCONT)

    async def _forge(self, fault: Fault) -> str:
        messages = forge(fault.kind, random.Random(fault.draw), self._watcher.workers)
        if not messages or not await publish(self._stage.nats_url, messages):
            return ""
        return f"{len(messages)} to {messages[0].subject}{' …' if len(messages) > 1 else ''}"


def _hosts(agent: int) -> list[int]:
    return [pid for pid in children.children_of(agent) if b"--socket" in proc.arguments(pid)]


def _trainers(agent: int) -> list[int]:
    return [
        trainer for host in _hosts(agent) for trainer in children.children_of(host) if not children.is_dead(trainer)
    ]


def _cluster(fault: Fault) -> str:
    return CLUSTERS[fault.draw % len(CLUSTERS)]


def _named(name: str, pid: int) -> str:
    return f"{name}, process {pid}" if pid else ""

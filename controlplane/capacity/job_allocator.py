"""The running allocator of one job: its loop, and its inputs from clusters, markets and the job's core."""

import asyncio
from collections.abc import Callable, Sequence

from controlplane.allocator.decide import decide
from controlplane.allocator.effects import AllocatorEffect
from controlplane.allocator.events import AllocatorEvent, MarketSeen, NodesSeen, QuotasSeen, Ticked
from controlplane.allocator.placement import free_nodes
from controlplane.allocator.state import Allocator
from controlplane.capacity.shell import AllocatorShell
from controlplane.capacity.start_policy import PullHint, Starts
from controlplane.capacity.translation import nodes_wanted
from controlplane.catalog.accelerators import BY_NAME
from controlplane.job.state import Want
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Quotas
from messages.clusters import ClusterHeartbeat
from messages.ids import ClusterName
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.logs import WhyLog, logger
from runtime.role import RoleLoop


class JobAllocator:
    def __init__(
        self,
        state: Allocator,
        shell: AllocatorShell,
        pull_hint: PullHint,
        criteria: Criteria | None,
        on_decision: Callable[[Allocator], None],
        clock: Clock,
    ) -> None:
        """`criteria`: those of a planned job's file; None for other jobs."""
        self._name = f"capacity/{state.job}"
        self._loop = RoleLoop[Allocator, AllocatorEvent, AllocatorEffect](
            self._name, state, decide, shell, Ticked, clock, [self._decided]
        )
        self._starts = Starts(state.job, pull_hint)
        self._criteria = criteria
        self._on_decision = on_decision
        self._clock = clock
        self._log_why = WhyLog(logger(job=state.job), "capacity_decided")
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> Allocator:
        return self._loop.state

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._task = tasks.create_task(self._loop.run(), name=self._name)

    def stop(self) -> None:
        """Cancel the loop. Events in its queue are dropped."""
        if self._task is not None:
            self._task.cancel()
        self._task = None

    def post(self, event: AllocatorEvent) -> None:
        self._loop.post(event)

    def want(self, want: Want) -> None:
        self.post(nodes_wanted(want, self._criteria, self._clock.monotonic_s()))

    def hear_heartbeat(self, heartbeat: ClusterHeartbeat) -> None:
        now_s, cluster = self._clock.monotonic_s(), heartbeat.cluster
        self.post(NodesSeen(now_s, cluster, heartbeat.nodes, free_nodes(heartbeat, self.state.job)))
        starts = self._starts.see(heartbeat, now_s)
        if starts is not None:
            self.post(starts)

    def hear_market(self, facts: Market | Quotas) -> None:
        """Pass on the market, or only quotas for a job that is not planned."""
        now_s = self._clock.monotonic_s()
        self.post(MarketSeen(now_s, facts) if isinstance(facts, Market) else QuotasSeen(now_s, facts))

    def accelerator_of(self, cluster: ClusterName, node: str) -> str:
        """The catalog's name of a node's accelerator; empty if unknown."""
        pools = self.state.pools.values()
        there = (pool.offer.kind.accelerator for pool in pools if pool.ref.cluster == cluster and node in pool.nodes)
        found = next(there, "")
        return found if found in BY_NAME else ""

    def _decided(self, _events: Sequence[AllocatorEvent], decision: Decision[Allocator, AllocatorEffect]) -> None:
        if self._task is None:
            return
        self._log_why(decision.why)
        self._on_decision(decision.state)

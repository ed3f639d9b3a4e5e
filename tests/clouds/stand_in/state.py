"""The state of the stand-in and the faults that it should cause."""

import asyncio
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from google.cloud import container_v1 as _container_v1
from google.rpc import status_pb2

container_v1: Any = _container_v1
"""`Any`, because the type checker knows these types only in part."""
PROJECT = "a-project"
Running = container_v1.Operation.Status.RUNNING
Ended = container_v1.Operation.Status.DONE


@dataclass(frozen=True, slots=True)
class Refusal:
    code: str
    message: str
    reason: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class Ending:
    """The wanted result of an operation."""

    code: int = 0
    message: str = ""
    status_message: str = ""
    conditions: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Pool:
    message: Any
    zone: str
    nodes: list[str]
    target: int
    made: int = 0

    @property
    def group(self) -> str:
        return f"gke-{self.message.name}-grp"


@dataclass(slots=True)
class Cluster:
    message: Any
    pools: dict[str, Pool] = field(default_factory=dict)


@dataclass(slots=True)
class Operation:
    message: Any
    cluster: str
    pool: str
    ends_s: float
    kind: str


@dataclass(slots=True)
class Google:
    operation_s: float = 0.02
    token_s: float = 3600.0
    operations_at_once: int = 5
    clusters: dict[str, Cluster] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Each called method with its subject."""
    tokens: dict[str, float] = field(default_factory=dict)
    rejected: int = 0
    """The number of calls with an expired token."""
    refusals: dict[str, deque[Refusal]] = field(default_factory=lambda: defaultdict(deque))
    endings: deque[Ending] = field(default_factory=deque)
    stocked_out: set[str] = field(default_factory=set)
    quotas: dict[str, float] = field(default_factory=lambda: {"NVIDIA_L4_GPUS": 64.0})
    missing_zones: tuple[str, ...] = ()
    held: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is clear, operations do not end."""
    most_at_work: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self.held.set()

    def issue_token(self) -> str:
        token = f"token-{len(self.tokens)}"
        self.tokens[token] = time.monotonic() + self.token_s
        return token

    def accepts(self, authorization: str) -> bool:
        good = self.tokens.get(authorization.removeprefix("Bearer "), 0.0) > time.monotonic()
        self.rejected += not good
        return good

    def refuse(self, method: str, refusal: Refusal) -> None:
        self.refusals[method].extend([refusal] * refusal.times)

    def asked(self, method: str) -> list[str]:
        return [about for called, about in self.calls if called == method]

    def pool(self, cluster: str, pool: str) -> Pool:
        return self.clusters[cluster].pools[pool]

    def grow(self, pool: Pool) -> Ending:
        """Fill a pool up to its target. Missing nodes show in the result of the operation."""
        used = sum(len(each.nodes) for cluster in self.clusters.values() for each in cluster.pools.values())
        while len(pool.nodes) > pool.target:
            pool.nodes.pop()
        while len(pool.nodes) < pool.target:
            name = f"gke-{pool.message.name}-{pool.made:04}"
            if pool.zone in self.stocked_out:
                return stockout(pool, name)
            if pool.message.config.accelerators and used >= self.quotas["NVIDIA_L4_GPUS"]:
                return over_quota(pool, name, self.quotas["NVIDIA_L4_GPUS"])
            pool.nodes.append(name)
            pool.made += 1
            used += 1
        return Ending()

    def settle(self) -> None:
        for operation in list(self.operations.values()):
            if operation.message.status != Ended and self.held.is_set() and operation.ends_s <= time.monotonic():
                self._end(operation)

    def _end(self, operation: Operation) -> None:
        cluster = self.clusters[operation.cluster]
        ending = Ending()
        if operation.kind == "delete_cluster":
            del self.clusters[operation.cluster]
        elif operation.kind == "delete_node_pool":
            del cluster.pools[operation.pool]
        else:
            pools = [cluster.pools[operation.pool]] if operation.pool else list(cluster.pools.values())
            for pool in pools:
                ending = self.grow(pool)
                short = container_v1.NodePool.Status.RUNNING_WITH_ERROR
                pool.message.status = short if ending.code else container_v1.NodePool.Status.RUNNING
                pool.message.conditions = conditions(ending)
            if operation.kind == "create_cluster":
                cluster.message.status = container_v1.Cluster.Status.RUNNING
                cluster.message.endpoint = "203.0.113.7"
                cluster.message.master_auth = {"cluster_ca_certificate": "UEVN"}
        ending = self.endings.popleft() if self.endings else ending
        operation.message.status = Ended
        operation.message.status_message = ending.status_message
        operation.message.nodepool_conditions = conditions(ending)
        if ending.code or ending.message:
            operation.message.error = status_pb2.Status(code=ending.code, message=ending.message)


def conditions(ending: Ending) -> list[Any]:
    return [container_v1.StatusCondition({"code": code, "message": message}) for code, message in ending.conditions]


def stockout(pool: Pool, name: str) -> Ending:
    text = (
        f"Google Compute Engine: Not all instances running in IGM after 35.1s. Expected {pool.target}, running "
        f"{len(pool.nodes)}, transitioning 1. Current errors: [GCE_STOCKOUT]: Instance '{name}' creation failed: "
        f"The zone 'projects/{PROJECT}/zones/{pool.zone}' does not have enough resources available to fulfill the "
        "request."
    )
    return Ending(code=8, message=text, conditions=(("GCE_STOCKOUT", text),))


def over_quota(pool: Pool, name: str, limit: float) -> Ending:
    text = (
        f"Google Compute Engine: Not all instances running in IGM after 35.1s. Expected {pool.target}, running "
        f"{len(pool.nodes)}, transitioning 1. Current errors: [GCE_QUOTA_EXCEEDED]: Instance '{name}' creation failed: "
        f"Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: {limit} in region us-central1."
    )
    return Ending(code=8, message=text, conditions=(("GCE_QUOTA_EXCEEDED", text),))

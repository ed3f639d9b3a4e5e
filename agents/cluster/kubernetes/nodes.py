"""The nodes of the cluster: told to the core when anything about them changes that matters."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import assert_never

from msgspec import structs

from agents.cluster.events import ClusterEvent, NodeGone, NodeSeen
from agents.cluster.kubernetes.observations import read_node
from messages.clusters import NodeSight
from messages.decoding import Undecodable, decode
from messages.labels import NOTICE_ANNOTATION
from runtime.backoff import Backoff
from runtime.clock import Clock
from runtime.kubernetes.client import ApiRefused, ApiUnavailable, KubernetesApi, NotFound
from runtime.kubernetes.objects import AnyObject, Node
from runtime.kubernetes.paths import NODES_PATH
from runtime.kubernetes.watch import Change, Seen, Vanished, Watcher
from runtime.logs import logger


class Nodes:
    def __init__(
        self,
        api: KubernetesApi,
        post: Callable[[ClusterEvent], None],
        on_gone: Callable[[str], None],
        clock: Clock,
        shutdown_grace_s: float,
    ) -> None:
        self._api = api
        self._shutdown_grace_s = shutdown_grace_s
        self._post = post
        self._on_gone = on_gone
        self._clock = clock
        self._watcher = Watcher(api, NODES_PATH, Node, self._on_change, clock)
        self._told: dict[str, NodeSight] = {}
        self._log = logger()

    @property
    def synced(self) -> asyncio.Event:
        return self._watcher.synced

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._told)

    def is_ready(self, name: str) -> bool:
        return name in self._told and self._told[name].ready

    async def run(self) -> None:
        """Until cancelled."""
        await self._watcher.run()

    async def born(self, name: str) -> datetime | None:
        """When the present machine of this name came, asked of the API until it answers; None if there is none."""
        backoff = Backoff()
        while True:
            try:
                answer = await self._api.get(f"{NODES_PATH}/{name}")
                return decode(answer, AnyObject).metadata.creation_timestamp
            except NotFound:
                return None
            except ApiUnavailable as error:
                await backoff.wait(error.retry_after_s)
            except (ApiRefused, Undecodable) as error:
                self._log.warning("node_not_read", node=name, why=str(error))
                await backoff.wait()

    def _on_change(self, changes: list[Change[Node]]) -> None:
        for change in changes:
            match change:
                case Seen(node):
                    self._see(node)
                case Vanished(node):
                    name = node.metadata.name
                    self._told.pop(name, None)
                    self._log.info("node_gone", node=name)
                    self._post(NodeGone(self._clock.monotonic_s(), name))
                    self._on_gone(name)
                case _:
                    assert_never(change)

    def _see(self, node: Node) -> None:
        sight, name = read_node(node, self._clock.wall_s(), self._shutdown_grace_s), node.metadata.name
        deadline = (node.metadata.annotations or {}).get(NOTICE_ANNOTATION, "")
        # A notice runs down by itself: that is nothing new.
        timeless = structs.replace(sight, notice_s=None if sight.notice_s is None else 0.0, why=sight.why + deadline)
        if self._told.get(name) == timeless:
            return
        self._told[name] = timeless
        if sight.notice_s is not None:
            self._log.info("node_noticed", node=name, notice_s=sight.notice_s, why=sight.why)
        self._post(NodeSeen(self._clock.monotonic_s(), sight))

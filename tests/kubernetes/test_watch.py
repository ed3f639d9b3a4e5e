"""Nothing that happens goes unnoticed, whatever becomes of the watch."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from runtime.clock import SystemClock
from runtime.kubernetes.client import KubernetesApi
from runtime.kubernetes.configuration import connected, from_endpoint
from runtime.kubernetes.objects import Metadata, Node
from runtime.kubernetes.paths import NODES_PATH
from runtime.kubernetes.watch import Change, Seen, Vanished, View, Watcher, WatchRules
from simulator.region.region import Region
from simulator.region.settings import ClusterRequest, CutRequest, RegionSettings
from tests.conftest import eventually
from tests.kubernetes.conftest import CLUSTER, SimulatedServer
from tests.kubernetes.ground import Ground
from tests.kubernetes.meddler import Meddler


def a_node(name: str, uid: str = "u1", version: str = "1") -> Node:
    return Node(Metadata(name=name, uid=uid, resource_version=version))


def test_a_list_tells_what_is_new_what_changed_and_what_vanished() -> None:
    view: View[Node] = View()
    assert view.replace([a_node("a"), a_node("b")]) == [Seen(a_node("a")), Seen(a_node("b"))]
    assert view.replace([a_node("a"), a_node("b", version="2"), a_node("c")]) == [
        Seen(a_node("b", version="2")),
        Seen(a_node("c")),
    ]
    assert view.replace([a_node("c")]) == [Vanished(a_node("a")), Vanished(a_node("b", version="2"))]


def test_another_object_of_the_same_name_means_that_the_first_has_vanished() -> None:
    view: View[Node] = View()
    view.replace([a_node("a", "u1")])
    assert view.see(a_node("a", "u2")) == [Vanished(a_node("a", "u1")), Seen(a_node("a", "u2"))]
    assert view.replace([a_node("a", "u3")]) == [Vanished(a_node("a", "u2")), Seen(a_node("a", "u3"))]


def test_the_end_of_an_object_that_is_not_known_or_already_another_is_none() -> None:
    view: View[Node] = View()
    assert view.lose(a_node("a")) == []
    view.see(a_node("a", "u2"))
    assert view.lose(a_node("a", "u1")) == []
    assert view.lose(a_node("a", "u2", "9")) == [Vanished(a_node("a", "u2", "9"))]
    assert dict(view.objects) == {}


class Log:
    """The changes from a watcher, by the name of the node without its mark."""

    def __init__(self, ground: Ground) -> None:
        self._mark = ground.named("").removeprefix("-")
        self.reported: list[tuple[str, str]] = []

    def hear(self, changes: list[Change[Node]]) -> None:
        for change in changes:
            name, _, mark = change.object.metadata.name.rpartition("-")
            if mark == self._mark:
                self.reported.append((type(change).__name__, name))

    @property
    def there(self) -> set[str]:
        found: set[str] = set()
        for kind, name in self.reported:
            found = found | {name} if kind == "Seen" else found - {name}
        return found


@contextlib.asynccontextmanager
async def a_watcher(api: KubernetesApi, log: Log, rules: WatchRules | None = None) -> AsyncIterator[Watcher[Node]]:
    watcher = Watcher(api, NODES_PATH, Node, log.hear, SystemClock(), rules=rules)
    task = asyncio.get_running_loop().create_task(watcher.run(), name="watcher")
    try:
        await eventually(watcher.synced.is_set, what="everything seen once")
        yield watcher
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_list_of_many_pages_is_one_list(through: KubernetesApi, ground: Ground) -> None:
    names = {f"n{number}" for number in range(5)}
    for name in sorted(names):
        await ground.node(name)
    log = Log(ground)
    async with a_watcher(through, log, WatchRules(page=2)):
        assert log.there == names


async def test_what_happens_while_the_server_is_away_is_seen_without_listing_again(
    through: KubernetesApi, meddler: Meddler, ground: Ground
) -> None:
    first = await ground.node("n1")
    log = Log(ground)
    async with a_watcher(through, log):
        await eventually(lambda: meddler.count("WATCH"), what="a watch")
        meddler.cut()
        await ground.remove_node(first)
        await ground.node("n2")
        await asyncio.sleep(0.3)
        lists = meddler.count(f"GET {NODES_PATH}")
        meddler.mend()
        await eventually(lambda: log.there == {"n2"}, what="what was missed")
        assert meddler.count(f"GET {NODES_PATH}") == lists


async def test_a_watch_that_the_server_ends_is_followed_by_the_next(
    through: KubernetesApi, meddler: Meddler, ground: Ground
) -> None:
    log = Log(ground)
    async with a_watcher(through, log, WatchRules(watch_s=1)):
        await eventually(lambda: meddler.count("WATCH") >= 3, what="three watches")
        assert meddler.count("WATCH") <= 6
        await ground.node("n1")
        await eventually(lambda: log.there == {"n1"}, what="the node")


async def test_everything_is_listed_again_once_in_a_while(
    through: KubernetesApi, meddler: Meddler, ground: Ground
) -> None:
    gone = await ground.node("n1")
    log = Log(ground)
    async with a_watcher(through, log, WatchRules(watch_s=1, relist_s=1.5)):
        meddler.blind()
        await ground.remove_node(gone)
        await eventually(lambda: log.there == set(), what="the deletion that no watch showed")


@pytest.mark.parametrize("as_status", [False, True])
async def test_a_server_that_has_forgotten_says_so_in_one_of_two_ways(as_status: bool) -> None:
    async with Region(RegionSettings(gone_as_status=as_status)) as region:
        view = await region.clusters.put(CLUSTER, ClusterRequest(controllers=False))
        server = SimulatedServer(region, view.endpoint)
        async with connected(from_endpoint(view.endpoint, server.token), "test") as api:
            ground = Ground(api)
            first = await ground.node("n1")
            await ground.node("n2")
            log = Log(ground)
            async with a_watcher(api, log):
                await ground.remove_node(first)
                await eventually(lambda: log.there == {"n2"}, what="the deletion")
                region.clusters.compact(CLUSTER, expire_watches=True)
                await ground.node("n3")
                await eventually(lambda: log.there == {"n2", "n3"}, what="the list after")


async def test_a_server_that_was_put_back_to_an_older_state_is_listed_again() -> None:
    async with Region(RegionSettings(bookmark_s=0.2)) as region:
        view = await region.clusters.put(CLUSTER, ClusterRequest(controllers=False))
        server = SimulatedServer(region, view.endpoint)
        async with connected(from_endpoint(view.endpoint, server.token), "test") as api:
            ground = Ground(api)
            log = Log(ground)
            async with a_watcher(api, log, WatchRules(silence_s=1.0)):
                store = region.clusters.get(CLUSTER).server.store
                store.version -= 1000
                region.clusters.cut(CutRequest(cut=True))
                region.clusters.cut(CutRequest(cut=False))
                await ground.node("n1")
                await eventually(lambda: log.there == {"n1"}, what="the node of the older world")

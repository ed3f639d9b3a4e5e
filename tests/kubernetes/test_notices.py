"""A notice that is seen on a node or on a pod reaches the master at once, and once."""

import time

from messages.clusters import Presence
from messages.ids import WorkerId
from messages.labels import NOTICE_ANNOTATION
from tests.conftest import eventually
from tests.kubernetes.conftest import Bench


async def a_worker(bench: Bench) -> tuple[str, str, WorkerId]:
    """Its pod, its node and its id."""
    await bench.start_and_hear()
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    node = await bench.ground.node("n1")
    await bench.ground.run(pod, node)
    worker = bench.speak(pod)
    await eventually(lambda: worker in bench.observations(Presence.ALIVE), what="the worker alive")
    return pod, node, worker


async def test_the_notice_of_a_node_is_forwarded_for_its_worker_and_shown_with_the_node(bench: Bench) -> None:
    pod, node, worker = await a_worker(bench)
    await bench.ground.notice(node, time.time() + 30.0)
    await eventually(lambda: bench.notices, what="the notice")
    [noticed] = bench.notices
    assert (noticed.worker, noticed.source) == (worker, "node")
    assert 10.0 < noticed.remaining_s <= 15.0
    await eventually(
        lambda: (observation := bench.node(node)) is not None and observation.notice_s, what="the node's notice"
    )
    assert await bench.ground.until_pods(1, besides={pod}), "its successor waits for the next machine"
    await bench.ground.annotate(node, {"unrelated": "change"})
    heard = len(bench.topologies)
    await eventually(lambda: len(bench.topologies) > heard + 1, what="more topologies")
    assert len(bench.notices) == 1
    status = bench.observations()[worker].status
    assert status is not None
    assert status.notice_s is not None, "whoever missed the notice reads it here"


async def test_a_node_that_shuts_down_and_one_that_is_about_to_be_taken_are_noticed_too(bench: Bench) -> None:
    _, node, worker = await a_worker(bench)
    await bench.ground.set_ready(node, "False", "KubeletNotReady", "node is shutting down")
    await eventually(lambda: bench.notices, what="the notice")
    assert bench.notices[0].worker == worker
    assert bench.notices[0].remaining_s <= 15.0


async def test_a_pod_that_somebody_deletes_gracefully_is_a_notice(bench: Bench) -> None:
    pod, _, worker = await a_worker(bench)
    await bench.ground.api.delete(f"{bench.ground.pods_path}/{pod}", grace_s=12)
    await eventually(lambda: bench.notices, what="the notice")
    assert (bench.notices[0].worker, bench.notices[0].source) == (worker, "pod")
    assert 5.0 < bench.notices[0].remaining_s <= 13.0


async def test_a_notice_of_an_earlier_machine_of_the_same_name_is_none(bench: Bench) -> None:
    await bench.start_and_hear()
    stale = {NOTICE_ANNOTATION: str(time.time() - 3600)}
    node = await bench.ground.node("n1", annotations=stale)
    await eventually(lambda: bench.node(node), what="the node")
    observation = bench.node(node)
    assert observation is not None
    assert observation.notice_s is None


async def test_a_controller_that_starts_after_the_notice_forwards_it(bench: Bench) -> None:
    _, node, worker = await a_worker(bench)
    await bench.kill()
    await bench.ground.notice(node, time.time() + 30.0)
    await bench.start_and_hear()
    await eventually(lambda: bench.notices, what="the notice")
    assert bench.notices[0].worker == worker


async def test_nodes_are_told_with_their_pool_zone_and_job(bench: Bench) -> None:
    await bench.start_and_hear()
    node = await bench.ground.node("n1", pool="spot-a", zone="us-central1-a")
    await eventually(lambda: bench.node(node), what="the node")
    observation = bench.node(node)
    assert observation is not None
    assert (observation.pool, observation.zone, observation.job, observation.ready) == (
        "spot-a",
        "us-central1-a",
        "story",
        True,
    )
    assert observation.uid
    message = "Kubelet stopped posting node status."
    await bench.ground.set_ready(node, "Unknown", "NodeStatusUnknown", message)
    await eventually(lambda: (now := bench.node(node)) is not None and not now.ready, what="the node not ready")
    now = bench.node(node)
    assert now is not None
    assert now.why == f"NodeStatusUnknown: {message}"
    await bench.ground.remove_node(node)
    await eventually(lambda: bench.node(node) is None, what="the node gone")

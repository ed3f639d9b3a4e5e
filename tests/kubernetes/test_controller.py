"""The controller keeps the pods of workers: a real one, on a real bus, against an API server that does nothing by
itself."""

import time

from agents.cluster.kubernetes.manifest import UID_LABEL
from agents.cluster.kubernetes.observations import container_exited
from agents.cluster.learn import not_started
from messages.clusters import KeepWorkers, Presence, RemoveWorkers, StartFailure, WorkerTemplate
from messages.ids import JobName
from messages.jobs import Pod
from messages.labels import JOB_LABEL
from tests.conftest import eventual_answer, eventually
from tests.kubernetes.conftest import Bench
from tests.kubernetes.ground import JOB


async def test_as_many_pods_as_wanted_are_kept(bench: Bench) -> None:
    await bench.start_and_hear()
    assert (await bench.keep(2)).ok
    first = await bench.ground.until_pods(2)
    await bench.keep(3)
    assert set(first) < set(await bench.ground.until_pods(3))
    await eventually(lambda: bench.topologies[-1].keeps == {JOB: 3}, what="the topology says so")


async def test_a_pod_is_what_the_template_says(bench: Bench) -> None:
    await bench.start_and_hear()
    template = WorkerTemplate(
        slots=2, env={"GREETING": "costs $(MONEY)"}, pod=Pod(image="mine:1", cpu="2", gpu=True, secrets=("keys",))
    )
    assert (await bench.keep(1, template=template)).ok
    [name] = await bench.ground.until_pods(1)
    pod = await bench.ground.manifest(name)
    agent, host = pod["spec"]["containers"]
    assert pod["metadata"]["labels"][JOB_LABEL] == JOB
    assert pod["metadata"]["labels"][UID_LABEL] == name
    assert (agent["image"], host["image"]) == ("tradewind:test", "mine:1")
    assert host["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert host["env"][-1] == {"name": "GREETING", "value": "costs $$(MONEY)"}
    assert pod["spec"]["nodeSelector"] == {JOB_LABEL: JOB}


async def test_a_pod_that_ends_is_replaced_and_its_remains_are_removed(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [first] = await bench.ground.until_pods(1)
    node = await bench.ground.node("n1")
    await bench.ground.run(first, node)
    bench.speak(first)
    await eventually(lambda: bench.observation(first) and bench.observations(Presence.ALIVE), what="the worker alive")
    await bench.ground.exit(first, 3, "it could not go on\nno disk")
    [second] = await bench.ground.until_pods(1, besides={first})
    assert second != first

    async def is_removed() -> bool:
        return first not in await bench.ground.pods()

    await eventual_answer(is_removed, what="the ended pod is removed")
    await eventually(lambda: bench.gone(first), what="the worker gone")
    gone = bench.gone(first)
    assert gone is not None
    assert gone.why == container_exited("agent", 3, last_line="no disk")


async def test_a_pod_whose_host_cannot_start_is_replaced_though_its_agent_waits_for_it(bench: Bench) -> None:
    await bench.start_and_hear(hostless_s=0.2)
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    await bench.ground.run(pod, await bench.ground.node("n1"))
    bench.speak(pod)
    await eventually(lambda: bench.observations(Presence.ALIVE), what="the worker alive")
    last_line = "No module named torch"
    await bench.ground.lose_host(pod, 1, last_line)

    await eventually(lambda: bench.gone(pod), what="the worker gone")
    gone = bench.gone(pod)
    assert gone is not None
    assert gone.why == container_exited("host", 1, last_line=last_line)
    assert await bench.ground.until_pods(1, besides={pod})


async def test_an_image_that_cannot_be_pulled_is_told_in_the_topology_until_it_can(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    node = await bench.ground.node("n1")
    await bench.ground.fail_pull(pod, node, "403 Forbidden")

    def failure() -> StartFailure | None:
        observation = bench.observation(pod)
        return observation.start_failure if observation is not None else None

    await eventually(failure, what="the failure is told")
    reported = failure()
    assert reported is not None
    assert (reported.reason, reported.detail, reported.image, reported.node) == (
        "ErrImagePull",
        "403 Forbidden",
        "test",
        node,
    )
    await bench.ground.set_running(pod)
    await eventually(lambda: failure() is None, what="the failure is over")


async def test_a_pod_that_somebody_deletes_is_replaced(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [first] = await bench.ground.until_pods(1)
    await bench.ground.kill(first)
    assert await bench.ground.until_pods(1, besides={first})


async def test_pods_of_a_node_that_is_gone_are_replaced_at_once(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(2)
    lost, other = await bench.ground.until_pods(2)
    nodes = [await bench.ground.node("n1"), await bench.ground.node("n2")]
    for pod, node in zip((lost, other), nodes, strict=True):
        await bench.ground.run(pod, node)
        bench.speak(pod)
    await eventually(lambda: len(bench.observations(Presence.ALIVE)) == 2, what="both workers alive")
    await bench.ground.remove_node(nodes[0])
    await eventually(lambda: bench.gone(lost), what="the worker gone")
    gone = bench.gone(lost)
    assert gone is not None
    assert "is gone" in gone.why
    assert bench.node(nodes[0]) is None
    assert len(await bench.ground.until_pods(1, besides={lost, other})) == 1
    assert bench.observation(other) is not None


async def test_a_silent_worker_on_a_node_that_is_not_ready_is_replaced(bench: Bench) -> None:
    await bench.start_and_hear(end_grace_s=1.0)
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    node = await bench.ground.node("n1")
    await bench.ground.run(pod, node)
    bench.speak(pod)
    await eventually(lambda: bench.observations(Presence.ALIVE), what="the worker alive")
    await bench.ground.set_ready(node, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    await eventually(
        lambda: (observation := bench.node(node)) is not None and not observation.ready, what="the node not ready"
    )
    assert bench.observation(pod) is not None
    bench.fall_silent(pod)
    assert await bench.ground.until_pods(1, besides={pod})

    async def is_removed() -> bool:
        return pod not in await bench.ground.pods()

    await eventual_answer(is_removed, what="the pod is removed although no kubelet ends it")
    await eventually(lambda: bench.gone(pod), what="the worker gone")


async def test_pods_that_crash_are_replaced_ever_more_slowly(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    node = await bench.ground.node("n1")
    seen: set[str] = set()
    paused_s = 0.0
    for _ in range(4):
        ended_s = time.monotonic()
        [pod] = await bench.ground.until_pods(1, besides=seen)
        paused_s = time.monotonic() - ended_s
        seen.add(pod)
        await bench.ground.run(pod, node)
        await bench.ground.exit(pod, 1, "no such module")
    assert paused_s > 1.5, "after three early deaths one waits for 2 s"


async def test_a_pod_that_cannot_be_placed_says_why_and_stays(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    await bench.ground.unschedulable(pod, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    await eventually(
        lambda: (
            (observation := bench.observation(pod)) is not None and "Insufficient nvidia.com/gpu" in observation.why
        ),
        what="the scheduler's reason",
    )
    observation = bench.observation(pod)
    assert observation is not None
    assert observation.presence is Presence.STARTING


async def test_a_template_that_the_api_refuses_is_told_and_tried_again_later(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1, template=WorkerTemplate(pod=Pod(cpu="much")))
    await eventually(lambda: bench.observations(Presence.GONE), what="the refusal")
    gone = next(iter(bench.observations(Presence.GONE).values()))
    assert gone.why.startswith(not_started(""))
    assert "quantit" in gone.why
    assert (await bench.keep(1)).ok
    assert await bench.ground.until_pods(1)


async def test_removed_workers_are_ended_and_not_replaced(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(2)
    removed, kept = await bench.ground.until_pods(2)
    node = await bench.ground.node("n1")
    await bench.ground.run(removed, node)
    worker = bench.speak(removed)
    await eventually(lambda: worker in bench.observations(Presence.ALIVE), what="the worker alive")
    assert (await bench.ask(RemoveWorkers(JOB, (worker,), "put out"))).ok

    async def is_deleted() -> bool:
        pod = (await bench.ground.pods()).get(removed)
        return pod is None or pod.metadata.deletion_timestamp is not None

    await eventual_answer(is_deleted, what="the pod deleted")
    await bench.ground.kill(removed)
    await eventually(lambda: bench.gone(removed), what="the worker gone")
    assert await bench.ground.until_pods(1) == [kept]
    assert bench.notices == []


async def test_a_job_that_needs_no_workers_any_more_leaves_no_pod(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(3)
    await bench.ground.until_pods(3)
    await bench.keep(0)
    assert await bench.ground.until_pods(0) == []


async def test_what_an_agent_leaves_behind_is_ended(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    await bench.ground.run(pod, await bench.ground.node("n1"))
    await bench.ground.lose_agent(pod, 137)
    assert await bench.ground.until_pods(0, besides=set()) == []
    assert bench.gone(pod) is None, "it has not ended before its kubelet says so"
    await bench.ground.kill(pod)
    await eventually(lambda: bench.gone(pod), what="the worker gone")
    assert await bench.ground.until_pods(1, besides={pod})


async def test_pods_of_others_are_left_alone(bench: Bench) -> None:
    body = {
        "metadata": {"name": "other", "labels": {"app": "tradewind-worker"}},
        "spec": {"serviceAccountName": "worker", "containers": [{"name": "c", "image": "i"}]},
    }
    await bench.ground.api.create(bench.ground.pods_path, body)
    await bench.start_and_hear()
    await bench.keep(0)
    await bench.keep(1)
    assert len(await bench.ground.until_pods(1, besides={"other"})) == 1
    assert "other" in await bench.ground.pods()


async def test_two_jobs_have_pods_of_their_own(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    await bench.ask(KeepWorkers(JobName("second"), 1, WorkerTemplate()))
    await bench.ground.until_pods(2)
    pods = await bench.ground.pods()
    assert {(pod.metadata.labels or {})[JOB_LABEL] for pod in pods.values()} == {JOB, "second"}


async def test_a_worker_is_told_of_in_the_zone_of_its_node(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    await bench.ground.run(pod, await bench.ground.node("n1", zone="us-central1-a"))
    worker = bench.speak(pod)
    await eventually(
        lambda: (
            (observation := bench.observations().get(worker))
            and observation.status
            and observation.status.zone == "us-central1-a"
        ),
        what="the zone",
    )
    assert bench.observations()[worker].presence is Presence.ALIVE

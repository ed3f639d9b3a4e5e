"""A real controller that keeps the pods of workers, on a real bus.

The API server does nothing by itself: the tests play scheduler, kubelet and cloud.
"""

from agents.cluster.kubernetes.decide import node_is_gone
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
    await eventually(lambda: bench.topologies[-1].keeps == {JOB: 3}, what="the new number in the topology")


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
    worker = bench.speak(first)
    await eventually(lambda: worker in bench.observations(Presence.ALIVE), what="the worker alive")
    await bench.ground.exit(first, 3, "it could not continue\nno disk")
    await bench.ground.until_pods(1, besides={first})

    async def is_removed() -> bool:
        return first not in await bench.ground.pods()

    await eventual_answer(is_removed, what="the ended pod is removed")
    await eventually(lambda: bench.gone(first), what="the worker gone")
    gone = bench.gone(first)
    assert gone is not None
    assert gone.why == container_exited("agent", 3, last_line="no disk")


async def test_a_pod_whose_host_ended_is_replaced_although_its_agent_runs(bench: Bench) -> None:
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
    await bench.ground.until_pods(1, besides={pod})


async def test_an_image_that_cannot_be_pulled_is_reported_until_its_pod_runs(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    node = await bench.ground.node("n1")
    await bench.ground.fail_pull(pod, node, "403 Forbidden")

    def failure() -> StartFailure | None:
        observation = bench.observation(pod)
        return observation.start_failure if observation is not None else None

    await eventually(failure, what="the report of the failure")
    reported = failure()
    assert reported is not None
    assert (reported.reason, reported.detail, reported.image, reported.node) == (
        "ErrImagePull",
        "403 Forbidden",
        "test",
        node,
    )
    await bench.ground.set_running(pod)
    await eventually(lambda: failure() is None, what="a report without the failure")


async def test_a_pod_that_somebody_deletes_is_replaced(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [first] = await bench.ground.until_pods(1)
    await bench.ground.kill(first)
    await bench.ground.until_pods(1, besides={first})


async def test_the_pod_of_a_removed_node_is_replaced_and_others_stay(bench: Bench) -> None:
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
    assert gone.why == node_is_gone(nodes[0])
    assert bench.node(nodes[0]) is None
    await bench.ground.until_pods(1, besides={lost, other})
    assert bench.observation(other) is not None


async def test_a_silent_worker_on_a_node_that_is_not_ready_is_replaced(bench: Bench) -> None:
    await bench.start_and_hear(end_grace_s=1.0)
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    node = await bench.ground.node("n1")
    await bench.ground.run(pod, node)
    worker = bench.speak(pod)
    await eventually(lambda: worker in bench.observations(Presence.ALIVE), what="the worker alive")
    await bench.ground.set_ready(node, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    await eventually(
        lambda: (observation := bench.node(node)) is not None and not observation.ready, what="the node not ready"
    )
    reports = len(bench.topologies)
    await eventually(lambda: len(bench.topologies) >= reports + 2, what="two more reports")
    assert bench.observations()[worker].presence is Presence.ALIVE, "an unready node alone is no reason to replace it"
    bench.fall_silent(pod)
    await bench.ground.until_pods(1, besides={pod})

    async def is_removed() -> bool:
        return pod not in await bench.ground.pods()

    await eventual_answer(is_removed, what="the pod is removed although no kubelet ends it")
    await eventually(lambda: bench.gone(pod), what="the worker gone")


async def test_a_pod_that_cannot_be_scheduled_is_reported_with_the_reason_and_stays(bench: Bench) -> None:
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


async def test_a_refused_template_is_reported_and_a_corrected_one_gets_its_pod(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1, template=WorkerTemplate(pod=Pod(cpu="much")))
    await eventually(lambda: bench.observations(Presence.GONE), what="the refusal")
    gone = next(iter(bench.observations(Presence.GONE).values()))
    assert gone.why.startswith(not_started(""))
    assert "quantit" in gone.why
    assert (await bench.keep(1)).ok
    await bench.ground.until_pods(1)


async def test_a_removed_worker_is_ended_and_not_replaced(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(2)
    removed, kept = await bench.ground.until_pods(2)
    node = await bench.ground.node("n1")
    await bench.ground.run(removed, node)
    worker = bench.speak(removed)
    await eventually(lambda: worker in bench.observations(Presence.ALIVE), what="the worker alive")
    assert (await bench.ask(RemoveWorkers(JOB, (worker,), "removed"))).ok

    async def is_deleted() -> bool:
        pod = (await bench.ground.pods()).get(removed)
        return pod is None or pod.metadata.deletion_timestamp is not None

    await eventual_answer(is_deleted, what="the pod deleted")
    await bench.ground.kill(removed)
    await eventually(lambda: bench.gone(removed), what="the worker gone")
    assert await bench.ground.until_pods(1) == [kept]
    assert bench.notices == []


async def test_a_job_that_keeps_no_workers_has_no_pods(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(3)
    await bench.ground.until_pods(3)
    await bench.keep(0)
    await bench.ground.until_pods(0)


async def test_a_pod_whose_agent_ended_is_deleted_and_then_replaced(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [pod] = await bench.ground.until_pods(1)
    await bench.ground.run(pod, await bench.ground.node("n1"))
    await bench.ground.lose_agent(pod, 137)
    await bench.ground.until_pods(0)
    assert bench.gone(pod) is None, "its kubelet has not ended it yet"
    await bench.ground.kill(pod)
    await eventually(lambda: bench.gone(pod), what="the worker gone")
    await bench.ground.until_pods(1, besides={pod})


async def test_pods_of_others_are_left_alone(bench: Bench) -> None:
    body = {
        "metadata": {"name": "other", "labels": {"app": "tradewind-worker"}},
        "spec": {"serviceAccountName": "worker", "containers": [{"name": "c", "image": "i"}]},
    }
    await bench.ground.api.create(bench.ground.pods_path, body)
    await bench.start_and_hear()
    await bench.keep(0)
    await bench.keep(1)
    await bench.ground.until_pods(1, besides={"other"})
    assert "other" in await bench.ground.pods()


async def test_each_of_two_jobs_has_its_own_pod(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    await bench.ask(KeepWorkers(JobName("second"), 1, WorkerTemplate()))
    await bench.ground.until_pods(2)
    pods = await bench.ground.pods()
    assert {(pod.metadata.labels or {})[JOB_LABEL] for pod in pods.values()} == {JOB, "second"}


async def test_a_worker_is_reported_in_the_zone_of_its_node(bench: Bench) -> None:
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

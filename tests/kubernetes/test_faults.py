"""What goes wrong around the controller: it is killed, the API forgets or goes away, tokens expire, machines return."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from agents.cluster.kubernetes.decide import ENDED_UNSEEN
from agents.cluster.kubernetes.observations import container_exited
from messages import subjects
from messages.clusters import Presence
from runtime.errors import NoAnswer
from runtime.kubernetes.configuration import connected, from_endpoint
from runtime.kubernetes.paths import NODES_PATH
from runtime.nats_server import NatsServer
from simulator.region.settings import CutRequest
from tests.conftest import Connect, eventual_answer, eventually
from tests.kubernetes.conftest import CLUSTER, Bench, a_kubeconfig, settings_for, simulated_server
from tests.kubernetes.ground import WORKER_ACCOUNT, Ground
from tests.kubernetes.meddler import Meddler

TOKEN_S = 5.0


async def two_workers(bench: Bench) -> list[str]:
    """Alive, each on a node of its own."""
    await bench.keep(2)
    pods = await bench.ground.until_pods(2)
    for index, pod in enumerate(pods):
        await bench.ground.run(pod, await bench.ground.node(f"n{index}"))
        bench.speak(pod)
    await eventually(lambda: len(bench.observations(Presence.ALIVE)) == 2, what="both workers alive")
    return pods


async def test_a_restart_disturbs_nothing(bench: Bench) -> None:
    stop = await bench.start_and_hear()
    pods = await two_workers(bench)
    before = {name: pod.metadata.uid for name, pod in (await bench.ground.pods()).items()}
    workers = set(bench.observations(Presence.ALIVE))
    await bench.end(stop)
    await bench.start_and_hear()
    await eventually(lambda: set(bench.observations(Presence.ALIVE)) == workers, what="the same workers")
    assert bench.observations(Presence.GONE) == {}
    assert {name: pod.metadata.uid for name, pod in (await bench.ground.pods()).items()} == before
    await bench.ground.exit(pods[0], 0)
    assert await bench.ground.until_pods(1, besides=set(pods))


async def test_a_killed_controller_that_lost_its_record_adopts_all_pods(bench: Bench) -> None:
    await bench.start_and_hear()
    pods = await two_workers(bench)
    await bench.kill()
    bucket = await bench.bus.bucket(subjects.STATE_BUCKET)
    await bucket.delete(subjects.known_key(CLUSTER))
    await bench.start_and_hear()
    await eventually(lambda: len(bench.observations(Presence.ALIVE)) == 2, what="both workers")
    assert (await bench.keep(3)).ok
    assert len(await bench.ground.until_pods(1, besides=set(pods))) == 1
    await bench.keep(0)
    await eventual_answer(lambda: all_deleted(bench), what="all are ended, the adopted ones too")


async def all_deleted(bench: Bench) -> bool:
    return all(pod.metadata.deletion_timestamp is not None for pod in (await bench.ground.pods()).values())


async def test_what_ended_while_no_controller_was_there_is_told_and_replaced(bench: Bench) -> None:
    await bench.start_and_hear()
    vanished, failed = await two_workers(bench)
    await bench.kill()
    await bench.ground.kill(vanished)
    await bench.ground.exit(failed, 2, "no disk")
    await bench.start_and_hear()
    await eventually(lambda: bench.gone(vanished) and bench.gone(failed), what="both told")
    whys = [observation.why for uid in (vanished, failed) if (observation := bench.gone(uid)) is not None]
    assert whys == [ENDED_UNSEEN, container_exited("agent", 2, last_line="no disk")]
    assert len(await bench.ground.until_pods(2, besides={vanished, failed})) == 2


async def test_pods_on_a_node_that_went_while_no_controller_was_there_are_replaced(bench: Bench) -> None:
    await bench.start_and_hear()
    lost, kept = await two_workers(bench)
    await bench.kill()
    await bench.ground.remove_node(bench.ground.named("n0"))
    await bench.start_and_hear()
    await eventually(lambda: bench.gone(lost), what="told")
    assert len(await bench.ground.until_pods(1, besides={lost, kept})) == 1
    assert bench.gone(kept) is None


async def test_a_second_controller_does_not_work_beside_the_first(bench: Bench) -> None:
    await bench.start_and_hear()
    bench.start(takeover_s=0.1)
    second = bench.controllers.pop()
    await asyncio.wait({second}, timeout=20.0)
    assert "Another cluster-controller" in str(second.exception())


async def test_a_controller_that_is_replaced_is_outwaited(bench: Bench) -> None:
    stop = await bench.start_and_hear()
    first = bench.topologies[-1].incarnation
    bench.start()
    await asyncio.sleep(0.5)
    stop.ask("test")
    await eventually(lambda: bench.topologies[-1].incarnation != first, what="the second one's topology")


async def test_deletions_that_were_missed_are_noticed_when_the_server_has_forgotten(bench: Bench) -> None:
    await bench.start_and_hear()
    missed, other = await two_workers(bench)
    bench.meddler.blind()
    await bench.ground.kill(missed)
    await bench.ground.remove_node(bench.ground.named("n1"))
    lists = bench.meddler.count(f"GET {NODES_PATH}")
    bench.meddler.expire()
    await eventually(lambda: bench.gone(missed) and bench.gone(other), what="both losses")
    assert bench.meddler.count(f"GET {NODES_PATH}") > lists
    assert len(await bench.ground.until_pods(2, besides={missed, other})) == 2


async def test_while_the_api_is_away_the_controller_continues_and_catches_up_after(bench: Bench) -> None:
    await bench.start_and_hear()
    first, second = await two_workers(bench)
    bench.meddler.cut()
    heard = len(bench.topologies)
    assert (await bench.keep(3)).ok
    await bench.ground.kill(first)
    await eventually(lambda: len(bench.topologies) > heard + 2, what="heartbeats go on")
    assert len(bench.observations(Presence.ALIVE)) == 2, "what it cannot know it does not claim"
    ours = {bench.ground.named("n0"), bench.ground.named("n1")}
    then, now = [[node for node in bench.topologies[at].nodes if node.node in ours] for at in (heard, -1)]
    assert now == then and len(now) == 2
    bench.meddler.mend()
    await eventually(lambda: bench.gone(first), what="the loss")
    assert len(await bench.ground.until_pods(2, besides={first, second})) == 2


async def test_a_controller_that_starts_while_the_api_is_away_does_nothing_until_it_has_seen_everything(
    bench: Bench,
) -> None:
    await bench.start_and_hear()
    pods = await two_workers(bench)
    await bench.kill()
    bench.meddler.cut()
    bucket = await bench.bus.bucket(subjects.STATE_BUCKET)
    await bucket.delete(subjects.known_key(CLUSTER))
    heard = len(bench.topologies)
    bench.start()
    await eventual_answer(lambda: answers(bench), what="it takes commands")
    requests = bench.meddler.count(f"GET {NODES_PATH}")
    await eventually(lambda: bench.meddler.count(f"GET {NODES_PATH}") > requests + 1, what="it tries again")
    assert len(bench.topologies) == heard, "it tells nothing that it has not seen"
    bench.meddler.mend()
    await eventually(lambda: len(bench.topologies) > heard, what="a topology")
    await eventually(lambda: len(bench.observations(Presence.ALIVE)) == 2, what="both workers")
    assert await bench.ground.until_pods(2) == pods, "there were enough all the time"


async def answers(bench: Bench) -> bool:
    try:
        return (await bench.keep(2)).ok
    except NoAnswer:
        return False


async def test_the_next_machine_of_the_same_name_keeps_its_own_pods(bench: Bench) -> None:
    await bench.start_and_hear()
    await bench.keep(1)
    [old] = await bench.ground.until_pods(1)
    node = await bench.ground.node("n1")
    await bench.ground.run(old, node)
    bench.speak(old)
    await eventually(lambda: bench.observations(Presence.ALIVE), what="the worker alive")
    bench.meddler.blind()
    await asyncio.sleep(1.1)  # times in the API are whole seconds: the next machine must be seen to be younger
    await bench.ground.remove_node(node)
    await bench.ground.node("n1")
    bench.meddler.expire()
    await eventually(lambda: bench.gone(old), what="the old worker gone with its machine")
    [new] = await bench.ground.until_pods(1, besides={old})
    await bench.ground.run(new, node)
    worker = bench.speak(new)
    await eventually(lambda: worker in bench.observations(Presence.ALIVE), what="the new worker alive")
    assert bench.gone(new) is None


async def test_watches_outlive_their_tokens_and_every_request_has_a_new_one(
    nats_server: NatsServer, connect: Connect
) -> None:
    """On the simulator, which can be told how long its tokens live."""
    given: list[str] = []
    async with simulated_server() as server, connected(from_endpoint(server.endpoint, server.token), "test") as api:

        async def short_token() -> str:
            given.append(await server.token(TOKEN_S))
            return given[-1]

        ground = Ground(api)
        await ground.prepare()
        async with Meddler(None) as unused:
            bench = Bench(await connect("master/test"), settings_for(ground, nats_server), ground, unused)
            await bench.listen()
            await bench.start_and_hear(from_endpoint(server.endpoint, short_token))
            await bench.keep(1)
            [first] = await ground.until_pods(1)
            asked = len(given)
            await asyncio.sleep(TOKEN_S + 1.5)
            assert len(given) == asked, "nothing had to be asked for meanwhile"
            await ground.kill(first)
            [second] = await ground.until_pods(1, besides={first})
            assert len(given) > asked
            server.region.clusters.cut(CutRequest(cut=True))
            server.region.clusters.cut(CutRequest(cut=False))
            await ground.kill(second)
            assert await ground.until_pods(1, besides={first, second})
            await bench.clean()


async def test_the_program_runs_from_its_environment_alone(
    ground: Ground, meddler: Meddler, nats_server: NatsServer, connect: Connect, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(msgspec.json.encode(a_kubeconfig(meddler.url, {"token": "unused"})))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRADEWIND_")},
        "KUBECONFIG": str(kubeconfig),
        "TRADEWIND_CLUSTER": CLUSTER,
        "TRADEWIND_NAMESPACE": ground.namespace,
        "TRADEWIND_WORKER_ACCOUNT": WORKER_ACCOUNT,
        "TRADEWIND_NATS_URL": nats_server.url,
    }
    bench = Bench(await connect("master/test"), settings_for(ground, nats_server), ground, meddler)
    await bench.listen()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agents.cluster.kubernetes", env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(lambda: bench.topologies, 40.0, what="a topology")
        await bench.keep(1)
        assert await ground.until_pods(1)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20.0):
            assert await process.wait() == 0
        assert await ground.until_pods(1), "its workers go on without it"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_settings_that_cannot_be_used_are_told_in_one_go() -> None:
    environment = {"PATH": os.environ["PATH"], "TRADEWIND_MAX_WORKERS": "many"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agents.cluster.kubernetes"), env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"TRADEWIND_CLUSTER" in said
    assert b"TRADEWIND_MAX_WORKERS" in said
    assert b"Traceback" not in said

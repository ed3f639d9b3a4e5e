"""Each fault between Tradewind and Google has its own outcome, and the next call works again."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from controlplane.clouds.gke import credentials
from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.interface import Cloud, PoolRef
from controlplane.clouds.outcomes import (
    Busy,
    Done,
    NotFound,
    Outcome,
    QuotaExceeded,
    Refused,
    StockedOut,
    Throttled,
    Unexplained,
    Unfinished,
    Unreachable,
)
from runtime.errors import Temporary, UserError
from tests.clouds.contract import found, until
from tests.clouds.stand_in.gke import SILENCE
from tests.clouds.stand_in.keys import write_key
from tests.clouds.stand_in.stage import StandInStage
from tests.clouds.stand_in.state import Ending, Refusal
from tests.conftest import eventually


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[StandInStage]:
    async with StandInStage.open(tmp_path) as stage:
        yield stage


@pytest.fixture
async def stage(bare: StandInStage) -> StandInStage:
    """A stage with a cluster and a pool of one node."""
    assert await bare.cloud.create_cluster_with_node_pool(bare.cluster) == Done()
    assert await bare.cloud.create_pool(bare.cluster.name, bare.pool) == Done()
    bare.google.calls.clear()
    return bare


def pool_of(stage: StandInStage) -> PoolRef:
    return PoolRef(stage.cluster.name, stage.pool.name)


@pytest.mark.parametrize(
    ("refusal", "outcome"),
    [
        (Refusal("RESOURCE_EXHAUSTED", "x", "RATE_LIMIT_EXCEEDED"), Throttled),
        (Refusal("RESOURCE_EXHAUSTED", "Too many operations: hits the concurrent operations quota"), Busy),
        (Refusal("FAILED_PRECONDITION", "Cluster is running incompatible operation operation-1."), Busy),
        (Refusal("PERMISSION_DENIED", "Insufficient regional quota to satisfy request"), QuotaExceeded),
        (Refusal("PERMISSION_DENIED", "x", "SERVICE_DISABLED"), Refused),
        (Refusal("PERMISSION_DENIED", "Permission denied on resource project.", "CONSUMER_INVALID"), Refused),
        (Refusal("INVALID_ARGUMENT", "Bad machine type."), Refused),
        (Refusal("NOT_FOUND", "Not found: pool."), NotFound),
        (Refusal("UNAVAILABLE", "The service is currently unavailable."), Unreachable),
        (Refusal("INTERNAL", "Internal error."), Unreachable),
        (Refusal("UNIMPLEMENTED", "Not here."), Refused),
    ],
)
async def test_a_refused_change_is_made_once_and_has_its_outcome(
    stage: StandInStage, refusal: Refusal, outcome: type[Outcome]
) -> None:
    stage.google.refuse("SetNodePoolSize", refusal)
    assert type(await stage.cloud.resize_pool(pool_of(stage), 2)) is outcome
    assert len(stage.google.asked("SetNodePoolSize")) == 1
    assert await stage.cloud.resize_pool(pool_of(stage), 2) == Done()


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Ending(conditions=(("GCE_STOCKOUT", "none left"),)), StockedOut),
        (Ending(status_message="Current errors: [GCE_STOCKOUT]: none left"), StockedOut),
        (Ending(code=8, message="ZONE_RESOURCE_POOL_EXHAUSTED"), StockedOut),
        (Ending(conditions=(("GCE_QUOTA_EXCEEDED", "0"),)), QuotaExceeded),
        (Ending(code=13, message="An internal error has occurred."), Unexplained),
        (Ending(code=10, message="Operation was aborted."), Busy),
        (Ending(code=3, message="No such machine type in this zone."), Refused),
    ],
)
async def test_how_an_operation_ended_is_read_wherever_it_is_written(
    stage: StandInStage, ending: Ending, outcome: type[Outcome]
) -> None:
    stage.google.endings.append(ending)
    assert type(await stage.cloud.resize_pool(pool_of(stage), 2)) is outcome


async def test_a_resize_is_one_call_and_waits_for_no_other(stage: StandInStage) -> None:
    async with stage.holding():
        resize = asyncio.create_task(stage.cloud.resize_pool(pool_of(stage), 2))
        await eventually(lambda: stage.google.asked("GetOperation"))
        assert stage.google.calls[0][0] == "SetNodePoolSize"
    assert await resize == Done()
    assert {method for method, _ in stage.google.calls} == {"SetNodePoolSize", "GetOperation"}


async def test_the_size_of_a_pool_is_its_target_not_what_it_was_made_with(stage: StandInStage) -> None:
    assert await stage.cloud.resize_pool(pool_of(stage), 3) == Done()
    assert stage.google.pool(*_names(stage)).message.initial_node_count == 1
    (cluster,) = found(await (await stage.another()).clusters())
    assert [pool.size for pool in cluster.pools if pool.ref == pool_of(stage)] == [3]


async def test_a_pool_whose_group_is_not_there_yet_is_as_large_as_it_was_asked_to_be(stage: StandInStage) -> None:
    stage.google.pool(*_names(stage)).message.instance_group_urls = []
    (cluster,) = found(await stage.cloud.clusters())
    assert [pool.size for pool in cluster.pools if pool.ref == pool_of(stage)] == [1]
    assert isinstance(await stage.cloud.remove_nodes(pool_of(stage), ["a"]), NotFound)


async def test_sizes_that_cannot_be_read_are_not_guessed(stage: StandInStage) -> None:
    stage.google.refuse("instanceGroupManagers.get", Refusal("UNAVAILABLE", "away", times=1000))
    assert isinstance(await stage.cloud.clusters(), Unreachable)
    stage.google.refusals.clear()
    stage.google.refuse("instanceGroupManagers.get", Refusal("PERMISSION_DENIED", "x", "SERVICE_DISABLED"))
    answer = await stage.cloud.clusters()
    assert isinstance(answer, Refused)
    assert "compute.googleapis.com" in answer.hint


async def test_too_many_questions_after_an_operation_do_not_end_it(stage: StandInStage) -> None:
    stage.google.refuse("GetOperation", Refusal("RESOURCE_EXHAUSTED", "x", "RATE_LIMIT_EXCEEDED", times=3))
    assert await stage.cloud.resize_pool(pool_of(stage), 2) == Done()


async def test_a_read_is_tried_again_while_nobody_answers(stage: StandInStage) -> None:
    stage.google.refuse("ListClusters", Refusal("UNAVAILABLE", "away", times=2))
    assert len(found(await stage.cloud.clusters())) == 1
    stage.google.refuse("regions.get", Refusal("UNAVAILABLE", "away", times=2))
    assert isinstance(await stage.cloud.quotas(stage.region), list)


async def test_a_list_with_holes_is_no_list(stage: StandInStage) -> None:
    stage.google.missing_zones = ("us-central1-a",)
    answer = await stage.cloud.clusters()
    assert isinstance(answer, Unreachable)
    assert "us-central1-a" in answer.detail


async def test_a_connection_lost_in_mid_operation_is_found_again(bare: StandInStage) -> None:
    cloud = await bare.another(lost_s=20.0)
    bare.google.held.clear()
    creation = asyncio.create_task(cloud.create_cluster_with_node_pool(bare.cluster))
    await eventually(lambda: bare.google.asked("GetOperation"))
    async with bare.away():
        before = len(bare.google.calls)
    bare.google.held.set()
    assert await creation == Done()
    assert len(bare.google.calls) > before


async def test_an_operation_nobody_can_be_asked_about_is_unreachable(stage: StandInStage) -> None:
    stage.google.held.clear()
    resize = asyncio.create_task(stage.cloud.resize_pool(pool_of(stage), 2))
    await eventually(lambda: stage.google.asked("GetOperation"))
    async with stage.away():
        outcome = await resize
    assert isinstance(outcome, Unreachable)
    assert "operation-" in outcome.detail


async def test_an_operation_that_was_forgotten_is_unreachable(stage: StandInStage) -> None:
    stage.google.held.clear()
    resize = asyncio.create_task(stage.cloud.resize_pool(pool_of(stage), 2))
    await eventually(lambda: stage.google.asked("GetOperation"))
    stage.google.operations.clear()
    assert isinstance(await resize, Unreachable)


async def test_nodes_that_do_not_come_in_time_are_not_waited_for(stage: StandInStage) -> None:
    stage.google.held.clear()
    cloud = await stage.another(nodes_s=0.2)
    outcome = await cloud.resize_pool(pool_of(stage), 2)
    assert isinstance(outcome, Unfinished)
    assert "0.2 s" in outcome.detail
    found(await cloud.clusters())
    assert isinstance(await cloud.resize_pool(pool_of(stage), 1), Busy)
    stage.google.held.set()
    await until(lambda: is_done(cloud, pool_of(stage), 1), True)


async def test_any_other_operation_that_does_not_end_is_not_waited_for_either(stage: StandInStage) -> None:
    stage.google.held.clear()
    cloud = await stage.another(operation_s=0.2)
    assert isinstance(await cloud.delete_pool(pool_of(stage)), Unfinished)


async def is_done(cloud: Cloud, pool: PoolRef, size: int) -> bool:
    return await cloud.resize_pool(pool, size) == Done()


async def test_who_waits_too_long_for_a_turn_is_busy_and_asks_google_nothing(stage: StandInStage) -> None:
    cloud = await stage.another(turn_s=0.1)
    found(await cloud.clusters())
    stage.google.held.clear()
    first = asyncio.create_task(cloud.resize_pool(pool_of(stage), 2))
    await eventually(lambda: stage.google.asked("GetOperation"))
    outcome = await cloud.resize_pool(pool_of(stage), 3)
    assert isinstance(outcome, Busy)
    assert all(value in outcome.detail for value in (stage.pool.name, "to 3", "to 2")), "it names what still runs"
    assert len(stage.google.asked("SetNodePoolSize")) == 1
    stage.google.held.set()
    assert await first == Done()


async def test_a_cluster_is_never_asked_for_more_at_once_than_was_set(stage: StandInStage) -> None:
    cloud = await stage.another(operations_per_cluster=3)
    plans = [replace(stage.pool, name=f"pool-{number}") for number in range(8)]
    outcomes = await asyncio.gather(*(cloud.create_pool(stage.cluster.name, plan) for plan in plans))
    assert outcomes == [Done()] * 8
    assert stage.google.most_at_work[stage.cluster.name] == 3


async def test_silence_is_bounded(stage: StandInStage) -> None:
    cloud = await stage.another(call_s=0.2)
    stage.google.refuse("ListClusters", Refusal(SILENCE, "", times=100))
    assert isinstance(await cloud.clusters(), Unreachable)
    stage.google.refusals.clear()
    found(await cloud.clusters())
    stage.google.refuse("SetNodePoolSize", Refusal(SILENCE, ""))
    assert isinstance(await cloud.resize_pool(pool_of(stage), 2), Unreachable)


async def test_an_address_that_swallows_everything_is_unreachable(bare: StandInStage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
        cloud = await bare.another(endpoint=f"127.0.0.1:{port}", compute_url=f"http://127.0.0.1:{port}", call_s=0.2)
        assert isinstance(await cloud.clusters(), Unreachable)
        assert isinstance(await cloud.quotas(bare.region), Unreachable)
        assert isinstance(await cloud.create_cluster_with_node_pool(bare.cluster), Unreachable)


async def test_the_one_that_does_not_speak_tls_is_told_nothing(bare: StandInStage) -> None:
    cloud = await bare.another(insecure=False)
    assert isinstance(await cloud.clusters(), Unreachable)
    assert not bare.google.calls


async def test_tokens_of_five_seconds_expire_in_mid_operation_and_nobody_notices(bare: StandInStage) -> None:
    bare.google.token_s = 5.0
    bare.google.held.clear()
    creation = asyncio.create_task(bare.cloud.create_cluster_with_node_pool(bare.cluster))
    await eventually(lambda: len(bare.google.tokens) >= 3, what="a third token")
    bare.google.held.set()
    assert await creation == Done()
    assert bare.google.rejected == 0


async def test_a_token_that_is_withdrawn_is_replaced(stage: StandInStage) -> None:
    stage.google.tokens.clear()
    assert await stage.cloud.resize_pool(pool_of(stage), 2) == Done()
    stage.google.tokens.clear()
    assert await stage.cloud.remove_nodes(pool_of(stage), sorted(await stage.nodes(pool_of(stage)))[:1]) == Done()
    stage.google.tokens.clear()
    assert isinstance(await stage.cloud.quotas(stage.region), list)
    assert stage.google.rejected == 3


async def test_an_account_that_google_never_accepts_is_refused(stage: StandInStage) -> None:
    stage.google.refuse("ListClusters", Refusal("UNAUTHENTICATED", "invalid authentication credentials", times=2))
    answer = await stage.cloud.clusters()
    assert isinstance(answer, Refused)
    assert "gcloud auth" in answer.hint


async def test_a_key_that_was_deleted_is_refused_in_one_sentence(bare: StandInStage) -> None:
    refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    bare.web.token_refusal = refusal
    answer = await bare.cloud.clusters()
    assert isinstance(answer, Refused)
    assert all(text in answer.detail for text in refusal.values())
    assert answer.hint == credentials.RENEW_KEY
    assert isinstance(await bare.cloud.create_cluster_with_node_pool(bare.cluster), Refused)
    with pytest.raises(UserError, match=refusal["error"]):
        await bare.cloud.access_token(bare.cluster.name)
    bare.web.token_refusal = None
    assert await bare.cloud.access_token(bare.cluster.name)


async def test_where_no_token_can_be_had_nobody_was_reached(bare: StandInStage, tmp_path: Path) -> None:
    nowhere = write_key(tmp_path / "nowhere.json", "http://127.0.0.1:1/token")
    cloud = await bare.another(credentials_file=str(nowhere))
    assert isinstance(await cloud.clusters(), Unreachable)
    assert isinstance(await cloud.create_cluster_with_node_pool(bare.cluster), Unreachable)
    with pytest.raises(Temporary, match=r"port=1\b"):
        await cloud.access_token(bare.cluster.name)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (None, os.strerror(errno.ENOENT)),
        ("not json", "line 1"),
        ("[]", "None"),
        ('{"type": "external_account"}', "'external_account'"),
        ('{"type": "service_account"}', "client_email"),
        ('{"type": "authorized_user"}', "refresh_token"),
    ],
)
async def test_a_credentials_file_that_cannot_be_used_is_refused(
    bare: StandInStage, tmp_path: Path, content: str | None, reported: str
) -> None:
    path = tmp_path / "other.json"
    if content is not None:
        path.write_text(content)
    answer = await (await bare.another(credentials_file=str(path))).clusters()
    assert isinstance(answer, Refused)
    assert reported in answer.detail
    assert str(path) in answer.detail
    if content is None:
        assert f"--write-credentials {path}" in answer.hint
    else:
        assert answer.hint == credentials.OTHER_FILE


async def test_no_credentials_at_all_are_refused(
    bare: StandInStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    cloud = await bare.another(credentials_file=None)
    answer = await cloud.clusters()
    assert isinstance(answer, Refused)
    assert "nothing.json" in answer.detail
    assert answer.hint == credentials.SIGN_IN


async def test_default_credentials_are_used_where_no_file_is_named(
    bare: StandInStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", bare.settings.credentials_file or "")
    assert found(await (await bare.another(credentials_file=None)).clusters()) == []


async def test_nodes_that_are_gone_already_are_removed(stage: StandInStage) -> None:
    (node,) = await stage.nodes(pool_of(stage))
    assert await stage.cloud.remove_nodes(pool_of(stage), [node, "gke-gone"]) == Done()
    assert await stage.nodes(pool_of(stage)) == set()
    assert await stage.cloud.remove_nodes(pool_of(stage), []) == Done()


@pytest.mark.parametrize(
    ("refusal", "outcome"),
    [
        (Refusal("RESOURCE_EXHAUSTED", "Rate Limit Exceeded"), Throttled),
        (Refusal("PERMISSION_DENIED", "Required permission"), Refused),
        (Refusal("INVALID_ARGUMENT", "The resource 'groups/g' is not ready", "resourceNotReady"), Busy),
        (Refusal("UNAVAILABLE", "Backend Error"), Unreachable),
    ],
)
async def test_a_removal_that_compute_refuses_has_its_outcome(
    stage: StandInStage, refusal: Refusal, outcome: type[Outcome]
) -> None:
    stage.google.refuse("instanceGroupManagers.deleteInstances", refusal)
    nodes = sorted(await stage.nodes(pool_of(stage)))
    assert type(await stage.cloud.remove_nodes(pool_of(stage), nodes)) is outcome
    assert len(stage.google.asked("instanceGroupManagers.deleteInstances")) == 1


async def test_closing_ends_what_is_under_way(stage: StandInStage) -> None:
    stage.google.held.clear()
    cloud = await GkeCloud.open(msgspec.structs.replace(stage.settings, lost_s=0.1))
    resize = asyncio.create_task(cloud.resize_pool(pool_of(stage), 2))
    await eventually(lambda: stage.google.asked("GetOperation"))
    await cloud.close()
    assert isinstance(await resize, Unreachable)


async def test_the_google_libraries_are_loaded_only_when_a_cloud_is_opened() -> None:
    program = (
        "import sys, controlplane.clouds.gke.cloud; sys.exit('grpc' in sys.modules or 'google.auth' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0


STARTS_CHILDREN = """
import asyncio, sys, uvloop
from controlplane.clouds.gke import credentials
from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.settings import GkeSettings

async def main(project, endpoint, compute_url, key):
    cloud = await GkeCloud.open(GkeSettings(
        project=project, endpoint=endpoint, insecure=True, compute_url=compute_url, credentials_file=key))
    async def child():
        process = await asyncio.create_subprocess_exec("true")
        return await process.wait()
    for _ in range(5):
        print(*await asyncio.gather(cloud.clusters(), child()))
    await cloud.close()

uvloop.run(main(*sys.argv[1:]))
"""


async def test_children_are_started_beside_calls_without_a_word_from_grpc(bare: StandInStage) -> None:
    settings = bare.settings
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTS_CHILDREN),
        *(settings.project, settings.endpoint, settings.compute_url, str(settings.credentials_file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert out.decode() == "[] 0\n" * 5


def _names(stage: StandInStage) -> tuple[str, str]:
    return stage.cluster.name, stage.pool.name

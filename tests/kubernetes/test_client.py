"""Requests, watches and logins, as any API server answers them."""

import asyncio
import contextlib
import re
from pathlib import Path

import msgspec
import pytest

from runtime.errors import UserError
from runtime.kubernetes.client import (
    AlreadyExists,
    ApiRefused,
    ApiUnavailable,
    KubernetesApi,
    NotFound,
    WatchSilent,
)
from runtime.kubernetes.configuration import connected, from_endpoint, from_kubeconfig, from_pod_or_kubeconfig
from runtime.kubernetes.paths import NODES_PATH
from simulator.kubernetes.gate import Cut
from simulator.region.settings import CutRequest
from tests.conftest import eventual_answer
from tests.kubernetes.conftest import a_kubeconfig, simulated_server
from tests.kubernetes.ground import WORKER_ACCOUNT, Ground
from tests.kubernetes.meddler import Meddler


async def test_what_is_not_there_and_what_is_there_already_are_told_apart(ground: Ground) -> None:
    with pytest.raises(NotFound):
        await ground.api.get(f"{NODES_PATH}/{ground.named('none')}")
    body = {"metadata": {"name": ground.namespace}}
    with pytest.raises(AlreadyExists):
        await ground.api.create("/api/v1/namespaces", body)
    with pytest.raises(ApiRefused) as refused:
        spec = {"serviceAccountName": WORKER_ACCOUNT, "containers": []}
        await ground.api.create(ground.pods_path, {"metadata": {"name": "empty"}, "spec": spec})
    assert refused.value.code == 422
    assert "spec.containers" in str(refused.value)


async def test_only_the_very_object_is_deleted_where_its_uid_is_given(ground: Ground) -> None:
    node = await ground.node("n1")
    with pytest.raises(ApiRefused) as refused:
        await ground.api.delete(f"{NODES_PATH}/{node}", uid="00000000-0000-0000-0000-000000000000")
    assert refused.value.code == 409
    await ground.api.get(f"{NODES_PATH}/{node}")


async def test_a_broken_connection_is_unavailable_for_requests_and_watches(
    through: KubernetesApi, meddler: Meddler
) -> None:
    async def watch() -> list[bytes]:
        async with contextlib.aclosing(through.watch(NODES_PATH, {}, 30.0)) as watched:
            return [line async for line in watched]

    watching = asyncio.get_running_loop().create_task(watch(), name="watch")

    async def is_watched() -> bool:
        return meddler.count("WATCH") == 1

    await eventual_answer(is_watched, what="the watch")
    await asyncio.sleep(0.1)
    meddler.cut()
    with pytest.raises(ApiUnavailable):
        await watching
    with pytest.raises(ApiUnavailable):
        await through.get(NODES_PATH)
    meddler.mend()
    assert b"items" in await through.get(NODES_PATH)


async def test_a_watch_in_which_nothing_is_said_is_given_up() -> None:
    async with simulated_server() as server, connected(from_endpoint(server.endpoint, server.token), "test") as api:
        server.region.clusters.cut(CutRequest(cut=True, how=Cut.SILENCE))
        with pytest.raises(ApiUnavailable) as raised:
            async with contextlib.aclosing(api.watch(NODES_PATH, {}, 0.2)) as lines:
                async for _ in lines:
                    pass
        assert (raised.value.code, raised.value.why.endswith("0.2 s")) == (0, True)
        assert not isinstance(raised.value, WatchSilent), "the server did not even accept the watch"
        server.region.clusters.cut(CutRequest(cut=False))


async def test_an_expired_token_is_no_refusal_and_a_token_file_is_read_again(tmp_path: Path) -> None:
    async with simulated_server() as server:
        token = tmp_path / "token"
        token.write_text(await server.token(-10.0))
        config = tmp_path / "kubeconfig"
        config.write_bytes(msgspec.json.encode(a_kubeconfig(server.endpoint, {"tokenFile": str(token)})))
        async with connected(await from_kubeconfig(str(config)), "test") as api:
            with pytest.raises(ApiUnavailable, match="401"):
                await api.get(NODES_PATH)
            token.write_text(await server.token())
            assert b"items" in await api.get(NODES_PATH)
            token.unlink()
            with pytest.raises(ApiUnavailable):
                await api.get(NODES_PATH)


async def test_the_names_of_mistakes_with_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=re.escape(str(tmp_path / "none"))):
        await from_pod_or_kubeconfig(str(tmp_path / "none"))
    broken = tmp_path / "broken"
    broken.write_text("clusters: [")
    with pytest.raises(UserError, match=re.escape(str(broken))):
        await from_pod_or_kubeconfig(str(broken))
    broken.write_text("{}")
    with pytest.raises(UserError, match=re.escape(str(broken))):
        await from_pod_or_kubeconfig(str(broken))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UserError, match="host/port"):
        await from_pod_or_kubeconfig(None)

"""The notice daemon: from Google's metadata server, or a file, to the annotation on the node."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from agents.clouds.gke.cloud import maintenance_s
from agents.clouds.gke.metadata import MAINTENANCE_WHY, PREEMPTED_WHY, GceMetadata
from agents.clouds.interface import Machine, Notice, NoticeOptions
from agents.notice.main import source_of
from agents.notice.notice_file import NoticeFile
from agents.notice.settings import NoticeSettings, read_notice_settings
from messages.labels import NOTICE_ANNOTATION, NOTICE_WHY_ANNOTATION
from runtime.errors import UserError
from simulator.metadata_server import MAINTENANCE, PREEMPTED, Metadata, MetadataServers
from tests.conftest import eventual_answer, eventually
from tests.kubernetes.conftest import meddled
from tests.kubernetes.ground import Ground
from tests.kubernetes.meddler import Meddler
from tests.kubernetes.node_clouds import a_daemon, watched


class Server:
    """The metadata server of a node."""

    def __init__(self, servers: MetadataServers, metadata: Metadata, host: str) -> None:
        self.servers = servers
        self.metadata = metadata
        self.host = host


@pytest.fixture
async def machine() -> AsyncIterator[Server]:
    servers = MetadataServers("127.0.0.1", lambda: ("token", 60.0))
    await servers.start()
    metadata = Metadata({PREEMPTED: "FALSE", MAINTENANCE: "NONE"})
    yield Server(servers, metadata, await servers.add(metadata))
    await servers.stop()


async def test_a_preemption_is_told_once_and_at_once(machine: Server) -> None:
    async with watched(GceMetadata(machine.host, 30.0, 60.0)) as reported:
        await eventually(lambda: len(reported) == 2, what="both values")
        assert reported == [None, None]
        machine.metadata.set(PREEMPTED, "TRUE")
        await eventually(lambda: len(reported) == 3, what="the notice")
        assert reported[-1] == Notice(30.0, PREEMPTED_WHY)


async def test_maintenance_that_ends_the_machine_is_a_notice_and_one_that_moves_it_is_not(machine: Server) -> None:
    async with watched(GceMetadata(machine.host, 30.0, 60.0)) as reported:
        machine.metadata.set(MAINTENANCE, "MIGRATE_ON_HOST_MAINTENANCE")
        await eventually(lambda: len(reported) >= 2, what="both values")
        assert set(reported) == {None}
        machine.metadata.set(MAINTENANCE, "TERMINATE_ON_HOST_MAINTENANCE")
        await eventually(lambda: reported[-1] is not None, what="the notice")
        assert reported[-1] == Notice(60.0, MAINTENANCE_WHY)
        machine.metadata.set(MAINTENANCE, "NONE")
        await eventually(lambda: reported[-1] is None, what="the all-clear")


@pytest.mark.parametrize(
    ("machine", "announced_s"),
    [
        (Machine(has_gpus=True), 3600.0),
        (Machine(), 60.0),
        (Machine(is_spot=True, has_gpus=True), 30.0),
    ],
)
def test_host_maintenance_is_announced_an_hour_before_only_to_gpus_on_demand(
    machine: Machine, announced_s: float
) -> None:
    assert maintenance_s(machine, NoticeOptions()) == announced_s
    assert maintenance_s(machine, NoticeOptions(maintenance_s=7.0)) == 7.0


async def test_a_metadata_server_that_comes_late_stumbles_or_hides_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agents.clouds.gke.metadata.HIDDEN_PAUSE_S", 0.01)
    monkeypatch.setattr("agents.clouds.gke.metadata.PAUSE_MOST_S", 0.05)
    answers = iter([503, 404, 500, 200])
    asked: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("maintenance-event"):
            return web.Response(status=404)
        asked.append({**request.query, "flavor": request.headers.get("Metadata-Flavor", "")})
        status = next(answers, 200)
        flavor = {"Metadata-Flavor": "Google", "ETag": str(len(asked))}
        return web.Response(status=status, text="TRUE" if len(asked) > 4 else "FALSE", headers=flavor)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with watched(GceMetadata(f"127.0.0.1:{runner.addresses[0][1]}", 30.0, 60.0)) as reported:
            await eventually(lambda: reported and reported[-1] is not None, what="the notice")
    finally:
        await runner.cleanup()
    assert asked[0]["flavor"] == "Google"
    assert "last_etag" not in asked[3]
    assert (asked[4]["last_etag"], asked[4]["wait_for_change"]) == ("4", "true")


async def test_a_file_can_tell_too(tmp_path: Path) -> None:
    path = tmp_path / "notice"
    async with watched(NoticeFile(path)) as reported:
        await eventually(lambda: reported == [None], what="no notice")
        path.write_text("12.5\n")
        await eventually(lambda: len(reported) == 2, what="the notice")
        notice = reported[-1]
        assert notice is not None and notice.remaining_s == 12.5 and path.name in notice.why
        path.write_text("soon")
        await eventually(lambda: reported[-1] is None, what="what cannot be read is none")


async def test_a_notice_is_written_on_the_node_and_a_stale_one_is_taken_off(
    machine: Server, ground: Ground, meddler: Meddler
) -> None:
    node = await ground.node("n1", annotations={NOTICE_ANNOTATION: "1.000", "of": "others"})
    settings = NoticeSettings(node=node, metadata_host=machine.host, notice_s=30.0)
    async with a_daemon(settings, meddled(meddler)):

        async def is_clean() -> bool:
            return await ground.annotations(node) == {"of": "others"}

        await eventual_answer(is_clean, what="the stale notice taken off")
        meddler.cut()
        machine.metadata.set(PREEMPTED, "TRUE")
        preempted_unix_s = time.time()
        await asyncio.sleep(0.3)
        meddler.mend()

        async def is_written() -> bool:
            return NOTICE_ANNOTATION in await ground.annotations(node)

        await eventual_answer(is_written, what="the notice on the node")
        written = await ground.annotations(node)
        assert preempted_unix_s - 0.1 < float(written[NOTICE_ANNOTATION]) - 30.0 < time.time()
        assert written[NOTICE_WHY_ANNOTATION] == PREEMPTED_WHY


def test_settings_come_from_our_variables_and_from_what_a_pod_is_given() -> None:
    given = read_notice_settings(
        {"TRADEWIND_NODE": "n1", "GCE_METADATA_HOST": "127.0.0.1:1", "TRADEWIND_NOTICE_S": "20"}
    )
    assert (given.node, given.metadata_host, given.notice_s) == ("n1", "127.0.0.1:1", 20.0)
    assert isinstance(source_of(NoticeSettings(node="n1", notice_file="/nowhere"), Machine()), NoticeFile)
    named = {"TRADEWIND_NODE": "n1", "GCE_METADATA_HOST": "127.0.0.1:1", "TRADEWIND_METADATA_HOST": "127.0.0.1:2"}
    assert read_notice_settings(named).metadata_host == "127.0.0.1:2"
    with pytest.raises(UserError) as mistake:
        read_notice_settings({})
    assert "TRADEWIND_NODE" in str(mistake.value)

"""What the API refuses, and how it says so."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import pytest_asyncio

from controlplane.master.api import ApiServer, open_listener
from controlplane.master.desk import Desk
from messages.api import Version
from messages.jobs import JobSpec
from runtime.nats_server import NatsServer
from tests.master.process import Api, MasterProcess, a_spec, running_master
from tests.master.waits import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "a-secret-of-ours"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    async with running_master(server.url, tmp_path_factory.mktemp("master")) as (_, client):
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    folder = tmp_path_factory.mktemp("guarded")
    async with (
        NatsServer(folder / "nats") as own,
        running_master(own.url, folder, TRADEWIND_API_TOKEN=TOKEN) as (_, client),
    ):
        yield client


async def test_version_and_health(api: Api) -> None:
    version = await api.version()
    assert (version.protocol, version.epoch > 0) == (1, True)
    health = await api.health()
    assert (health.ok, health.why, health.clusters) == (True, "", 0)


async def test_an_unknown_job_is_a_404_with_a_hint_on_every_route(api: Api) -> None:
    for method, path in (
        ("GET", ""),
        ("GET", "/logs"),
        ("GET", "/events"),
        ("GET", "/progress"),
        ("POST", "/stop"),
        ("POST", "/scale"),
        ("POST", "/reload"),
    ):
        status, problem = await api.ask(method, f"/v1/jobs/nobody{path}", b'{"workers": 1}')
        assert (status, problem) == (404, {"error": "There is no job 'nobody'.", "hint": "tradewind status"})


async def test_an_unknown_route_is_a_404(api: Api) -> None:
    status, problem = await api.ask("GET", "/v2/everything")
    assert status == 404
    assert "/v2/everything" in problem["error"]
    status, _ = await api.ask("DELETE", "/v1/jobs")
    assert status == 405


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
async def test_what_is_not_json_is_refused(api: Api, body: bytes) -> None:
    status, problem = await api.ask("POST", "/v1/jobs", body)
    assert status == 400
    assert "not JSON" in problem["error"]


async def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    status, problem = await api.ask("POST", "/v1/jobs", b" " * 2_000_000)
    assert status == 413
    assert problem["error"]


async def test_every_problem_of_a_job_is_reported_with_its_path(api: Api) -> None:
    body = {"name": "Bad Name", "launch": {"script": "x.py", "colour": 1}, "workers": {"max": "many"}}
    status, problem = await api.ask("POST", "/v1/jobs", body)
    assert status == 400
    told = "\n".join(problem["problems"])
    assert all(path in told for path in ("name", "launch.colour", "workers.max"))


async def test_contradictions_are_reported_together(api: Api) -> None:
    body: dict[str, Any] = {"name": "odd", "launch": {}, "workers": {"min": 3, "max": 2}}
    status, problem = await api.ask("POST", "/v1/jobs", body)
    assert status == 400
    assert [line.partition(":")[0] for line in problem["problems"]] == ["launch", "workers.min"]
    status, _ = await api.ask("GET", "/v1/jobs/odd")
    assert status == 404


async def test_mistakes_of_several_kinds_are_reported_together(api: Api) -> None:
    body: dict[str, Any] = {"name": "fleet", "launch": {}, "workers": {"min": 3, "max": 2}, "replica": "two"}
    status, problem = await api.ask("POST", "/v1/jobs", body)
    assert status == 400
    paths = [line.partition(":")[0] for line in problem["problems"]]
    assert sorted(paths) == ["launch", "name", "replica", "workers.min"]


async def test_no_job_can_be_called_fleet(api: Api) -> None:
    status, problem = await api.ask("POST", "/v1/jobs", a_spec("fleet"))
    assert status == 400
    assert problem["problems"][0].startswith("name:")


async def test_a_job_waits_and_says_for_what(api: Api) -> None:
    view = await api.submit(a_spec("alone", 2, least=2))
    assert isinstance(view.spec, JobSpec)
    assert (await api.until_phase("alone", "waiting")).why
    status, listed = await api.ask("GET", "/v1/jobs")
    assert (status, [job["name"] for job in listed["jobs"]]) == (200, ["alone"])
    for body in (b'{"workers": "two"}', b'{"workers": 2, "more": 1}', b"[]"):
        status, problem = await api.ask("POST", "/v1/jobs/alone/scale", body)
        assert (status, bool(problem["problems"])) == (400, True)
    for query in ("rank=x", "tail=-1", "tail=99999999999"):
        status, problem = await api.ask("GET", f"/v1/jobs/alone/logs?{query}")
        assert status == 400
        assert "not a number" in problem["error"]


async def test_a_body_that_is_not_packed_as_it_says_is_refused_in_a_sentence(api: Api) -> None:
    headers = {"Content-Encoding": "gzip", "Connection": "close"}
    status, problem = await api.ask("POST", "/v1/jobs", b"not packed", headers=headers)
    assert status == 400
    assert problem["error"].startswith("The body of the request cannot be read")


async def test_a_web_page_cannot_use_an_api_without_a_token(api: Api) -> None:
    pages = ({"Host": "evil.example:8800"}, {"Origin": "https://evil.example"}, {"Origin": "null"})
    broken = ({"Host": "["}, {"Host": "[::1"}, {"Origin": "http://[bad"})
    for headers in (*pages, *broken):
        status, problem = await api.ask("POST", "/v1/jobs", a_spec("evil"), headers=headers)
        assert status == 403
        assert problem["hint"]
    status, _ = await api.ask("GET", "/v1/jobs", headers={"Host": "localhost:8800"})
    assert status == 200


async def test_with_a_token_everything_but_health_needs_it(guarded: Api) -> None:
    wrong = (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ", "Bearer é")
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/version"), ("GET", "/v1/events")):
        for value in wrong:
            status, problem = await guarded.ask(method, path, headers={"Authorization": value})
            assert (status, problem["error"]) == (401, "The API needs the right token.")
    status, _ = await guarded.ask("GET", "/healthz", headers={"Authorization": "Bearer nonsense"})
    assert status == 200
    assert (await guarded.version()).protocol == 1


async def ended(environ: dict[str, str], folder: Path) -> tuple[int, str]:
    """The exit code of a master that cannot start, and what it said."""
    process = MasterProcess("nats://127.0.0.1:1", folder, **environ)
    await process.start()
    try:
        return await process.wait(), process.said()
    finally:
        await process.kill()


async def test_a_master_does_not_listen_elsewhere_without_a_token(tmp_path: Path) -> None:
    code, said = await ended({"TRADEWIND_API_HOST": "0.0.0.0"}, tmp_path)
    assert code == 2
    assert said.startswith("Error: The API runs what it is told to, so it does not listen on 0.0.0.0 without a token.")
    assert "Try: set TRADEWIND_API_TOKEN" in said
    assert "Traceback" not in said


async def test_a_port_that_is_taken_is_one_sentence_and_harms_no_other_master(
    api: Api, server: NatsServer, tmp_path: Path
) -> None:
    before = (await api.version()).epoch
    port = api.url.rpartition(":")[2]
    code, said = await ended({"TRADEWIND_API_PORT": port, "TRADEWIND_NATS_URL": server.url}, tmp_path)
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in said
    assert "Traceback" not in said
    assert (await api.version()).epoch == before


async def test_an_address_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    code, said = await ended({"TRADEWIND_NATS_URL": "http//nowhere"}, tmp_path)
    assert code == 2
    assert "Error: 'http//nowhere' cannot be the address of a NATS server" in said
    assert "Traceback" not in said


async def test_a_handler_that_fails_is_logged_and_the_next_request_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def views(self) -> None:
            raise RuntimeError("a defect")

        def version(self) -> Version:
            return Version("1", 1, 1)

    listener = open_listener("127.0.0.1", 0)
    server = ApiServer(cast(Desk, Broken()), listener, "")
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            client = Api(session, f"http://127.0.0.1:{server.port}")
            async with session.get(f"{client.url}/v1/jobs") as response:
                assert response.status == 500
            assert (await client.version()).version == "1"
    finally:
        await server.close()
    assert "a defect" in caplog.text
    assert "Traceback" in caplog.text


async def test_importing_the_master_imports_no_torch() -> None:
    code = "import sys, json, controlplane.master.main; print(json.dumps('torch' in sys.modules))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await process.communicate()
    assert json.loads(out) is False

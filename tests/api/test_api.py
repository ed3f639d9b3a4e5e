"""Refusals of the API."""

import asyncio
import contextlib
import errno
import gzip
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp.compression_utils import ZLibDecompressor
from msgspec import structs

from controlplane.api.access import TOKEN_WRONG
from controlplane.api.app import ApiServer, BodyCompressed, open_listener
from controlplane.api.service import JobService
from controlplane.jobs.errors import JobUnknown
from messages.api import Version
from messages.jobs import JobSpec, Launch
from runtime.nats_server import NatsServer
from tests.conftest import PATIENCE_S, eventually
from tests.master.process import Api, MasterProcess, a_spec, running_master

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
        unknown = JobUnknown("nobody")
        assert (status, problem) == (404, {"error": unknown.message, "hint": unknown.hint})


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
    reported = "\n".join(problem["problems"])
    assert all(path in reported for path in ("name", "launch.colour", "workers.max"))


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
        name, _, value = query.partition("=")
        assert f"{name}={value!r}" in problem["error"]


async def test_a_refused_job_has_at_most_a_hundred_problems_and_says_that_there_are_more(api: Api) -> None:
    env = {f"key-{number}": number for number in range(2_000)}
    body: dict[str, Any] = {"name": "bad", "launch": {"script": "x.py", "args": [1] * 36_000, "env": env}}
    status, problem = await api.ask("POST", "/v1/jobs", body)
    assert status == 400
    assert problem["problems"][0].startswith("launch.args[0]: ") and "str" in problem["problems"][0]
    [more] = problem["problems"][100:]
    assert more.startswith("…") and "100" in more


async def test_a_compressed_body_is_refused(api: Api) -> None:
    status, problem = await api.ask("POST", "/v1/jobs", a_spec("plain"), headers={"Content-Encoding": "identity"})
    assert status == 201, problem
    await api.ask("POST", "/v1/jobs/plain/stop")
    for body in (b"not packed", gzip.compress(msgspec.json.encode(a_spec("packed")))):
        status, problem = await api.ask("POST", "/v1/jobs", body, headers={"Content-Encoding": "gzip"})
        assert (status, problem["hint"]) == (415, BodyCompressed("gzip").hint)
    assert (await api.ask("GET", "/v1/jobs/packed"))[0] == 404


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
            assert (status, problem["error"]) == (401, TOKEN_WRONG)
    status, _ = await guarded.ask("GET", "/healthz", headers={"Authorization": "Bearer nonsense"})
    assert status == 200
    assert (await guarded.version()).protocol == 1


async def ended(environ: dict[str, str], folder: Path) -> tuple[int, str]:
    """The exit code and the output of a master that cannot start."""
    process = MasterProcess("nats://127.0.0.1:1", folder, **environ)
    await process.start()
    try:
        return await process.wait(), process.said()
    finally:
        await process.kill()


async def test_a_master_does_not_listen_elsewhere_without_a_token(tmp_path: Path) -> None:
    code, said = await ended({"TRADEWIND_API_HOST": "0.0.0.0"}, tmp_path)
    assert code == 2
    assert said.startswith("Error: ") and " 0.0.0.0 " in said
    assert "Try: " in said and "TRADEWIND_API_TOKEN" in said
    assert "Traceback" not in said


async def test_a_port_that_is_taken_is_one_sentence_and_harms_no_other_master(
    api: Api, server: NatsServer, tmp_path: Path
) -> None:
    before = (await api.version()).epoch
    port = api.url.rpartition(":")[2]
    code, said = await ended({"TRADEWIND_API_PORT": port, "TRADEWIND_NATS_URL": server.url}, tmp_path)
    assert code == 2
    assert f" 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE).lower()}" in said
    assert "Traceback" not in said
    assert (await api.version()).epoch == before


async def test_an_address_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    code, said = await ended({"TRADEWIND_NATS_URL": "http//nowhere"}, tmp_path)
    assert code == 2
    assert said.startswith("Error: ") and "'http//nowhere'" in said
    assert "Traceback" not in said


@contextlib.asynccontextmanager
async def serving(service: object, token: str = "") -> AsyncIterator[Api]:
    """Serves the API in this process, with the parts of a service that the test needs."""
    server = ApiServer(cast(JobService, service), open_listener("127.0.0.1", 0), token)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Api(session, f"http://127.0.0.1:{server.port}")
    finally:
        await server.close()


class Versioned:
    def version(self) -> Version:
        return Version("1", 1, 1)


async def test_others_are_answered_while_a_large_body_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, others_answered = threading.Event(), threading.Event()

    def waits_for_others(_spec: JobSpec) -> list[tuple[str, str]]:
        begun.set()
        return [] if others_answered.wait(PATIENCE_S) else [("", "nobody else was answered")]

    monkeypatch.setattr("controlplane.api.app.problems_of", waits_for_others)

    class Taking(Versioned):
        async def submit(self, spec: JobSpec, *, replace: bool) -> Version:
            return Version(spec.name, 1, 1)

    spec = structs.replace(a_spec("large"), launch=Launch(script="train.py", args=("x" * 100,) * 1_000))
    async with serving(Taking()) as client, asyncio.TaskGroup() as tasks:
        large = tasks.create_task(client.ask("POST", "/v1/jobs", spec), name="large")
        await eventually(begun.is_set, what="the body to be looked at")
        assert (await client.version()).version == "1"
        others_answered.set()
        status, answer = await large
    assert (status, answer.get("version")) == (201, "large"), answer


@pytest.mark.parametrize("token", ["", TOKEN])
async def test_nothing_of_a_request_is_ever_decompressed(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    made: list[str] = []

    class Watched(ZLibDecompressor):
        def __init__(self, encoding: str | None = None, **more: Any) -> None:
            made.append(str(encoding))
            super().__init__(encoding, **more)

    monkeypatch.setattr("aiohttp.http_parser.ZLibDecompressor", Watched)
    bomb = gzip.compress(b" " * 10_000_000)
    async with serving(Versioned(), token) as client:
        for path, expected in (("/v1/jobs", 401 if token else 415), ("/v1/jobs/x/scale", 401 if token else 415)):
            status, _ = await client.ask("POST", path, bomb, headers={"Content-Encoding": "gzip"})
            assert status == expected
    assert made == []


async def test_a_handler_that_fails_is_logged_and_the_next_request_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Versioned):
        def job_list(self, after: str, at_most: int | None) -> None:
            raise RuntimeError("a defect")

    async with serving(Broken()) as client:
        async with client.session.get(f"{client.url}/v1/jobs") as response:
            assert response.status == 500
        assert (await client.version()).version == "1"
    assert "a defect" in caplog.text
    assert "Traceback" in caplog.text


async def test_importing_the_master_imports_no_torch() -> None:
    code = "import sys, json, controlplane.master.main; print(json.dumps('torch' in sys.modules))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await process.communicate()
    assert json.loads(out) is False

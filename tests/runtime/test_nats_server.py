"""A server of our own: on loopback, with JetStream, gone when it is stopped."""

import asyncio
import errno
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from runtime import children, nats_server
from runtime.bus import Bus, BusSettings
from runtime.errors import UserError
from runtime.nats_server import NatsServer

STARTS_A_SERVER = """
import asyncio, sys
from pathlib import Path
from runtime.nats_server import NatsServer
async def main():
    server = NatsServer(Path(sys.argv[1]))
    await server.start()
    print(server.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_it_serves_and_is_gone_afterwards(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "a" / "b") as server:
        pid = server.pid
        bus = await Bus.connect(BusSettings(url=server.url))
        await (await bus.bucket("b")).put("k", b"1")
        await bus.close()
    assert await children.wait_exit(pid, timeout_s=10.0)
    assert (tmp_path / "a" / "b" / "jetstream").is_dir()


def listening_addresses(port: int) -> list[str]:
    lines = (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines()
    listening = (line.split()[1].split(":") for line in lines if line.split()[3] == "0A")
    return [address for address, number in listening if int(number, 16) == port]


async def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        assert listening_addresses(server.port) == ["0100007F"]


async def test_a_chosen_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = NatsServer(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(UserError, match=f" {server.port}:") as raised:
            await server.start(timeout_s=10.0)
    assert os.strerror(errno.EADDRINUSE).lower() in raised.value.message


async def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", server.port))
        taken.listen()
        await server.start()
        assert server.port != taken.getsockname()[1]
    await server.stop()


async def test_it_dies_with_the_one_that_started_it(tmp_path: Path) -> None:
    parent = await children.start(
        [sys.executable, "-c", STARTS_A_SERVER, str(tmp_path)], stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(30):
        pid = int(await parent.stdout.readline())
    parent.kill()
    assert await children.wait_exit(pid, timeout_s=30.0)
    await children.end(parent, grace_s=0.0)


async def test_its_own_end_is_seen(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    await server.start()
    children.signal_group(server.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        assert await server.wait_exit() == -signal.SIGKILL
    await server.stop()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.pid


def test_a_missing_binary_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="not installed"):
        nats_server.binary()

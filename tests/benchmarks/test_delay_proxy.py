"""The delay that benchmarks put between processes."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from benchmarks.delay_proxy import Proxy, Route
from runtime.children import free_port

ONE_WAY_S = 0.03
WITHIN_S = 10.0


@pytest.fixture
async def echo_port() -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect(proxy: Proxy, port: int) -> tuple[asyncio.Server, asyncio.StreamReader, asyncio.StreamWriter]:
    route = Route("127.0.0.1", free_port(), "127.0.0.1", port)
    server = await proxy.listen(route)
    reader, writer = await asyncio.open_connection(route.listen_host, route.listen_port)
    return server, reader, writer


async def test_everything_arrives_in_order_and_not_before_its_time(echo_port: int) -> None:
    sent = b"".join(number.to_bytes(4, "big") for number in range(50_000))
    async with asyncio.timeout(WITHIN_S):
        began_s = time.monotonic()
        server, reader, writer = await connect(Proxy(ONE_WAY_S), echo_port)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        first_s = time.monotonic() - began_s
        began_s = time.monotonic()
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        second_s = time.monotonic() - began_s
        writer.write_eof()
        assert await reader.read() == b""
    assert first_s >= 4 * ONE_WAY_S, "a handshake costs a round trip of its own"
    assert second_s >= 2 * ONE_WAY_S
    writer.close()
    server.close()


async def test_an_end_is_handed_on_too(echo_port: int) -> None:
    server, reader, writer = await connect(Proxy(0.001), echo_port)
    async with asyncio.timeout(WITHIN_S):
        writer.write(b"bye")
        writer.write_eof()
        assert await reader.read() == b"bye"
    writer.close()
    server.close()


async def test_where_nobody_listens_the_connection_ends() -> None:
    server, reader, writer = await connect(Proxy(0.001), free_port())
    async with asyncio.timeout(WITHIN_S):
        assert await reader.read() == b""
    writer.close()
    server.close()


def test_a_route_is_read_as_it_is_written() -> None:
    route = Route.parse("127.0.0.2:29400=127.0.0.1:4222")
    assert route == Route("127.0.0.2", 29400, "127.0.0.1", 4222)
    assert Route.parse(str(route)) == route

"""A TCP proxy that forwards every byte after a fixed delay, to simulate a distance between processes of one machine.

It does not limit the bandwidth or change the order. The kernel accepts a connection at once, but the proxy forwards
nothing before the round trip that the handshake would take.
"""

import argparse
import asyncio
import contextlib
import socket
import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from runtime.process import Stop, run

_CHUNK_BYTES: Final = 256 * 1024
_WAITING_CHUNKS: Final = 1024


class Route(Struct, frozen=True):
    listen_host: str
    listen_port: int
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Route":
        """Parses a route such as `127.0.0.2:29400=127.0.0.1:29400`."""
        listen, _, target = text.partition("=")
        listen_host, _, listen_port = listen.rpartition(":")
        host, _, port = target.rpartition(":")
        return cls(listen_host, int(listen_port), host, int(port))

    def __str__(self) -> str:
        return f"{self.listen_host}:{self.listen_port}={self.host}:{self.port}"


class Proxy:
    def __init__(self, one_way_s: float) -> None:
        self._one_way_s = one_way_s

    async def listen(self, route: Route) -> asyncio.Server:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                await self._serve(reader, writer, route)

        return await asyncio.start_server(serve, route.listen_host, route.listen_port, limit=_CHUNK_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, route: Route) -> None:
        opens_s = time.monotonic() + 2 * self._one_way_s
        try:
            far_reader, far_writer = await asyncio.open_connection(route.host, route.port, limit=_CHUNK_BYTES)
        except OSError:
            writer.close()
            raise
        for end in (writer, far_writer):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, far_writer, opens_s), name=f"there/{route}")
                pumps.create_task(self._pump(far_reader, writer, opens_s), name=f"back/{route}")
        except* OSError:
            pass
        finally:
            writer.close()
            far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opens_s: float) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_WAITING_CHUNKS)

        async def read() -> None:
            while True:
                chunk = await reader.read(_CHUNK_BYTES)
                await waiting.put((max(time.monotonic(), opens_s) + self._one_way_s, chunk))
                if not chunk:
                    return

        async def write() -> None:
            while True:
                due_s, chunk = await waiting.get()
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                if not chunk:
                    with contextlib.suppress(OSError):
                        writer.write_eof()
                    return
                writer.write(chunk)
                await writer.drain()

        async with asyncio.TaskGroup() as ends:
            ends.create_task(read(), name="proxy-read")
            ends.create_task(write(), name="proxy-write")


async def serve(routes: Sequence[Route], one_way_s: float, stop: Stop) -> int:
    proxy = Proxy(one_way_s)
    servers = [await proxy.listen(route) for route in routes]
    print("listening", flush=True)
    await stop.wait()
    for server in servers:
        server.close()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delay_proxy", description=__doc__)
    parser.add_argument("--one-way-ms", type=float, required=True)
    parser.add_argument("routes", nargs="+", type=Route.parse, metavar="HOST:PORT=HOST:PORT", help="listen=target")
    options = parser.parse_args()
    return run(lambda stop: serve(options.routes, options.one_way_ms / 1000, stop))


if __name__ == "__main__":
    raise SystemExit(main())

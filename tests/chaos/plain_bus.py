"""Publishes to a nats-server in its text protocol, because the project's client refuses to send forged messages."""

import asyncio
import contextlib
from collections.abc import Iterable

from tests.chaos.forge import Forged

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"plain","version":"1"}\r\n'
ANSWER_S = 5.0
"""Seconds to connect and to get the answer to PING, for all messages together."""


async def publish(url: str, messages: Iterable[Forged]) -> bool:
    """Publishes messages. True once the server answers the PING behind them (PONG), so that it has read all of them.

    A message that the server refuses with `-ERR` without closing the connection goes unnoticed. False if the server is
    away, closes the connection or does not answer in time.
    """
    host, _, port = url.removeprefix("nats://").partition(":")
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(CONNECT)
                for message in messages:
                    writer.write(
                        f"PUB {message.subject} {len(message.payload)}\r\n".encode() + message.payload + b"\r\n"
                    )
                writer.write(b"PING\r\n")
                while line := await reader.readline():
                    if line.startswith(b"PONG"):
                        return True
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    return False

"""A plain-text client of a nats-server, for forged messages: the project's own client refuses to send them."""

import asyncio
from collections.abc import Iterable

from tests.chaos.forge import Forged

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"plain","version":"1"}\r\n'
ANSWER_S = 5.0
"""Seconds in which the connection and the server's answer to all messages must come."""


async def publish(url: str, messages: Iterable[Forged]) -> bool:
    """Publishes messages. Returns True if the server has accepted all of them.

    A PING follows the messages: its PONG shows that the server has read them. Returns False if the server answers
    `-ERR`, is away, closes the connection or does not answer within `ANSWER_S`.
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
                    if line.startswith((b"PONG", b"-ERR")):
                        return line.startswith(b"PONG")
            finally:
                writer.transport.abort()
    except OSError:  # a TimeoutError, too
        pass
    return False

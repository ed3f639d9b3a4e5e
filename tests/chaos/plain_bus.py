"""Publishing to a nats-server in its plain text protocol: a client of ours would refuse to send what is forged here."""

import asyncio
import contextlib
from collections.abc import Iterable

from tests.chaos.forge import Forged

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"plain","version":"1"}\r\n'
ANSWER_S = 5.0


async def publish(url: str, messages: Iterable[Forged]) -> bool:
    """Whether the server has taken all of them; False also while it is away."""
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

"""What `nats sub 'tradewind.>'` does, in the plain text protocol: no code of ours stands between bus and eye."""

import asyncio
import json
from contextlib import suppress

Seen = list[tuple[str, dict[str, object]]]


async def listen(url: str, seen: Seen) -> None:
    """Until cancelled or disconnected. A payload that is not a JSON object ends it with an error."""
    host, _, port = url.removeprefix("nats://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            b'CONNECT {"verbose":false,"pedantic":false,"lang":"plain","version":"1"}\r\nSUB tradewind.> 1\r\n'
        )
        while line := await reader.readline():
            verb, *rest = line.decode().split()
            if verb == "PING":
                writer.write(b"PONG\r\n")
            elif verb == "MSG":
                payload = await reader.readexactly(int(rest[-1]) + 2)
                message = json.loads(payload)
                assert isinstance(message, dict)
                seen.append((rest[0], message))
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

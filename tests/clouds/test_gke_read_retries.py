"""Retries of reads, and their time limit."""

import asyncio
import socket
import time

import aiohttp
import pytest

from controlplane.clouds.gke.failures import CallFailed, Code
from controlplane.clouds.gke.read_retries import retry_read

READ_S, CALL_S = 0.3, 0.2


async def test_the_end_is_not_missed_where_that_of_a_call_comes_at_the_same_moment() -> None:
    """Both timeouts expire at once, as after a pause of the process, and aiohttp reports its own."""
    tries: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_S)) as session:

            async def read() -> None:
                tries.append(time.monotonic())
                asyncio.get_running_loop().call_later(0.05, time.sleep, READ_S + CALL_S)
                try:
                    async with session.get(url):
                        raise AssertionError("somebody answers")
                except TimeoutError:
                    raise CallFailed(Code.DEADLINE_EXCEEDED, "nobody answers") from None

            async with asyncio.timeout(30.0):
                with pytest.raises(CallFailed):
                    await retry_read(read, READ_S)
    assert len(tries) == 1

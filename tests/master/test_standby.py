"""Answers of a standby to requests."""

import socket
from typing import Any

import aiohttp
import pytest

from controlplane.master.standby import StandbyServer, describe_standby
from messages.records import LeaseRecord

LEADER = "http://10.0.0.1:8800"


@pytest.mark.parametrize(
    ("connected", "leader"),
    [
        (True, ""),
        (True, LEADER),
        (False, ""),
    ],
)
async def test_the_leader_is_reported_only_while_it_can_be_known(connected: bool, leader: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/jobs"
    record = LeaseRecord(holder="master/there/1", since=0.0, url=LEADER) if leader or not connected else None
    async with (
        StandbyServer(listener, "", lambda: record, lambda: connected),
        aiohttp.ClientSession() as session,
        session.get(url) as response,
    ):
        problem: dict[str, Any] = await response.json()
    assert (response.status, problem["leader"]) == (503, leader)
    assert problem["error"] == describe_standby(record if connected else None, connected=connected)
    assert (f"master/there at {LEADER}" in problem["error"]) is bool(leader)

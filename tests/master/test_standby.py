"""What a master that does not lead answers to whoever asks it."""

import socket
from typing import Any

import aiohttp
import pytest

from controlplane.master.standby import StandbyServer
from messages.records import LeaseRecord

LEADER = "http://10.0.0.1:8800"


@pytest.mark.parametrize(
    ("connected", "leader", "sentence"),
    [
        (True, "", "This master is a standby, and no leader is known yet."),
        (True, LEADER, f"This master is a standby: master/there at {LEADER} leads."),
        (False, "", "This master is a standby, and the bus is away."),
    ],
)
async def test_who_leads_is_told_only_while_it_can_be_known(connected: bool, leader: str, sentence: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/jobs"
    record = LeaseRecord(holder="master/there/1", since=0.0, url=LEADER) if leader or not connected else None
    async with (
        StandbyServer(listener, "", lambda: record, lambda: connected),
        aiohttp.ClientSession() as session,
        session.get(url) as response,
    ):
        problem: dict[str, Any] = await response.json()
    assert (response.status, problem["error"], problem["leader"]) == (503, sentence, leader)

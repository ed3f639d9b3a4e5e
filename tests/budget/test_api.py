"""A budget that is read and raised through a real master."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from msgspec import convert, structs

from controlplane.jobs.budgets import NO_FLEET
from messages.budgets import BudgetRequest, BudgetView
from messages.criteria import Capacity, WhenSpent
from runtime.nats_server import NatsServer
from tests.master.process import Api, a_spec, running_master


@pytest_asyncio.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with NatsServer(tmp_path / "nats") as server:
        yield server.url


async def test_a_budget_is_shown_raised_and_outlives_the_master(url: str, tmp_path: Path) -> None:
    capacity = Capacity(max_usd_total=10.0, when_spent=WhenSpent.STOP)
    async with running_master(url, tmp_path) as (_, api):
        await api.submit(structs.replace(a_spec("bounded"), capacity=capacity))
        await api.submit(a_spec("unbounded"))
        first = await _budget(api, "bounded")
        assert (first.micro_usd_total, first.when_spent, first.micro_usd) == (10_000_000, WhenSpent.STOP, 0)
        assert first.note == NO_FLEET
        assert (await _budget(api, "unbounded")).micro_usd_total is None
        assert (await _raise(api, "bounded", 12.5)).micro_usd_total == 12_500_000
        assert (await _raise(api, "unbounded", 3.0)).when_spent is WhenSpent.PAUSE
        _, cost = await api.ask("GET", "/v1/jobs/bounded/cost")
        assert cost["budget_micro_usd"] == 12_500_000
    async with running_master(url, tmp_path) as (_, api):
        assert (await _budget(api, "bounded")).micro_usd_total == 12_500_000
        assert (await _budget(api, "unbounded")).micro_usd_total == 3_000_000


async def test_a_budget_is_not_lowered_and_what_makes_no_sense_is_refused(url: str, tmp_path: Path) -> None:
    async with running_master(url, tmp_path) as (_, api):
        await api.submit(structs.replace(a_spec("bounded"), capacity=Capacity(max_usd_total=10.0)))
        status, error = await _refusal(api, "bounded", b'{"usd": 9.5}')
        assert (status, "10.0000 USD" in error) == (409, True)
        assert (await _refusal(api, "bounded", b'{"usd": -1}'))[0] == 400
        assert (await _refusal(api, "bounded", b'{"usd": 20, "now": true}'))[0] == 400
        assert (await _refusal(api, "nobody", b'{"usd": 20}'))[0] == 404
        assert (await _budget(api, "bounded")).micro_usd_total == 10_000_000


async def _budget(api: Api, name: str) -> BudgetView:
    status, view = await api.ask("GET", f"/v1/jobs/{name}/budget")
    assert status == 200, view
    return convert(view, BudgetView)


async def _raise(api: Api, name: str, usd: float) -> BudgetView:
    status, view = await api.ask("POST", f"/v1/jobs/{name}/budget", BudgetRequest(usd))
    assert status == 200, view
    return convert(view, BudgetView)


async def _refusal(api: Api, name: str, body: bytes) -> tuple[int, str]:
    status, problem = await api.ask("POST", f"/v1/jobs/{name}/budget", body)
    return status, problem["error"]

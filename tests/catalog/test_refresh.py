"""Prices are fetched from an API that answers like Google's; an error changes nothing."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from controlplane.catalog import cache
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog
from controlplane.catalog.price_list import Price, PriceList
from controlplane.catalog.refresh import Prices, PricesAway, PricesRefused
from controlplane.clouds.gke import price_api as fetching
from controlplane.clouds.gke.price_api import PriceSettings, fetch_skus, open_prices
from runtime.errors import Temporary, UserError
from tests.catalog.builders import PriceApi, a_catalog, an_offer, l4_skus, status, text
from tests.conftest import eventually


class Rests:
    """Records waits, without waiting."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await asyncio.sleep(0)


def settings_for(api: PriceApi, folder: Path, **changes: Any) -> PriceSettings:
    given = {"url": api.url, "api_key": "a-key", "cache": str(folder / "cache" / "prices.json"), **changes}
    return PriceSettings(**given)


async def refreshed(prices: Prices) -> bool:
    return await prices.refresh()


async def fetched(api: PriceApi, rests: Rests, **changes: Any) -> int:
    async with aiohttp.ClientSession() as session:
        return len(await fetch_skus(session, settings_for(api, Path(), **changes), rest=rests))


async def test_all_pages_are_fetched_with_the_key_in_a_header(price_api: PriceApi) -> None:
    assert await fetched(price_api, Rests()) == len(price_api.skus)
    assert [request.query.get("pageToken") for request in price_api.asked] == [None, "4", "8", "12"]
    assert {request.headers["X-Goog-Api-Key"] for request in price_api.asked} == {"a-key"}
    assert not any("key" in request.query for request in price_api.asked)


async def test_a_token_is_asked_for_where_there_is_no_key(price_api: PriceApi) -> None:
    async def account() -> dict[str, str]:
        return {"Authorization": "Bearer from-the-account"}

    async with aiohttp.ClientSession() as session:
        await fetch_skus(session, PriceSettings(url=price_api.url), account=account)
    assert price_api.asked[0].headers["Authorization"] == "Bearer from-the-account"


def a_user(project: str = "") -> fetching.Account:
    """A user's credentials, as `GkeCloud.api_headers` returns them."""

    async def account() -> dict[str, str]:
        return {"Authorization": "Bearer user.token"} | ({"X-Goog-User-Project": project} if project else {})

    return account


async def test_the_project_that_pays_is_sent_with_a_user_s_token(price_api: PriceApi, tmp_path: Path) -> None:
    settings = settings_for(price_api, tmp_path, api_key=None)
    assert await refreshed(open_prices(a_catalog(), settings, account=a_user("a-project")))
    given = settings_for(price_api, tmp_path, api_key=None, token="user.given", project="a-project")
    assert await refreshed(open_prices(a_catalog(), given))
    assert {request.headers["X-Goog-User-Project"] for request in price_api.asked} == {"a-project"}


@pytest.mark.parametrize(
    ("project", "reported"),
    [
        ("", "Run: gcloud auth application-default set-quota-project"),
        ("foreign", "gcloud projects add-iam-policy-binding foreign .*roles/serviceusage.serviceUsageConsumer"),
        ("bare", "Run: gcloud services enable cloudbilling.googleapis.com --project=bare"),
    ],
)
async def test_a_refusal_leaves_the_shipped_prices_and_says_what_to_run(
    price_api: PriceApi, tmp_path: Path, project: str, reported: str
) -> None:
    price_api.usable.add("bare")
    prices = open_prices(a_catalog(), settings_for(price_api, tmp_path, api_key=None), account=a_user(project))
    assert not await refreshed(prices)
    assert prices.catalog == a_catalog()
    assert re.search(reported, prices.problem)
    assert len(price_api.asked) == 1


async def test_the_same_problem_is_announced_once(price_api: PriceApi, tmp_path: Path) -> None:
    price_api.answers = [status(403, "no"), status(403, "no"), status(403, "other")]
    rests, announced = Rests(), list[str]()
    prices = open_prices(a_catalog(), settings_for(price_api, tmp_path), rest=rests)
    running = asyncio.create_task(prices.run(announced.append), name="prices")
    await eventually(lambda: len(rests.taken) >= 4, what="four rounds")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ["no" in announced[0], "other" in announced[1], len(announced)] == [True, True, 2]


async def test_a_page_that_fails_for_a_moment_is_asked_for_again_with_backoff(price_api: PriceApi) -> None:
    price_api.answers = [status(503), status(429), status(500)]
    rests = Rests()
    assert await fetched(price_api, rests) == len(price_api.skus)
    assert rests.taken == [0.5, 1.0, 2.0]


async def test_a_page_that_continues_failing_is_given_up(price_api: PriceApi) -> None:
    price_api.answers = [status(503)] * 10
    with pytest.raises(PricesAway, match="503"):
        await fetched(price_api, Rests(), attempts=3)
    assert len(price_api.asked) == 3


async def test_a_refusal_is_told_with_its_reason_and_not_repeated(price_api: PriceApi) -> None:
    reason = "API key not valid."
    price_api.answers = [status(403, reason)]
    with pytest.raises(PricesRefused, match=reason):
        await fetched(price_api, Rests())
    assert len(price_api.asked) == 1


async def test_pages_that_never_end_are_given_up(price_api: PriceApi, monkeypatch: pytest.MonkeyPatch) -> None:
    again = text(json.dumps({"skus": [], "nextPageToken": "x"}))
    price_api.answers = [again, again]
    with pytest.raises(PricesRefused, match="same page"):
        await fetched(price_api, Rests())
    monkeypatch.setattr(fetching, "MAX_PAGES", 2)
    with pytest.raises(PricesRefused, match="2 pages"):
        await fetched(price_api, Rests())


async def test_a_page_that_is_too_large_is_not_read_to_its_end(
    price_api: PriceApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_PAGE_BYTES", 1000)
    with pytest.raises(PricesRefused, match="larger than 1000"):
        await fetched(price_api, Rests())


async def test_an_api_that_is_silent_is_waited_for_no_longer_than_allowed(price_api: PriceApi) -> None:
    async def wait_for_ever(seconds: float) -> None:
        await asyncio.Event().wait()

    price_api.answers = [status(503)]
    async with aiohttp.ClientSession() as session:
        with pytest.raises(PricesAway, match=r"within 0\.2 s"):
            await fetch_skus(session, PriceSettings(url=price_api.url, api_key="k", total_s=0.2), rest=wait_for_ever)


@pytest.mark.parametrize(
    ("raised", "reported"), [(Temporary("later"), PricesAway), (UserError("log in"), PricesRefused)]
)
async def test_a_token_that_cannot_be_had_is_a_reason(
    price_api: PriceApi, raised: Exception, reported: type[Exception]
) -> None:
    async def account() -> dict[str, str]:
        raise raised

    async with aiohttp.ClientSession() as session:
        with pytest.raises(reported):
            await fetch_skus(session, PriceSettings(url=price_api.url, attempts=1), account=account)


async def test_new_prices_are_used_told_and_kept_for_the_next_start(price_api: PriceApi, tmp_path: Path) -> None:
    reported: list[Catalog] = []
    settings = settings_for(price_api, tmp_path)
    prices = open_prices(a_catalog(), settings, on_change=reported.append)
    assert await refreshed(prices)
    assert prices.catalog.offers[0].spot_micro_usd_per_hour == 341_280
    assert reported == [prices.catalog]

    again = open_prices(a_catalog(), settings)
    assert again.catalog.offers == prices.catalog.offers
    assert again.catalog.date == prices.catalog.date > "2026-08-22"
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["prices.json"]


WRONG = {
    "not json": text("<html>"),
    "no skus": text("{}"),
    "skus of another kind": text(json.dumps({"skus": [{"description": 7}]})),
    "no skus that matter": text(json.dumps({"skus": []})),
    "negative": text(json.dumps({"skus": l4_skus(spot_gpu_nanos=-5)})),
    "refused": status(401),
    "not there": status(404),
    "cut off": lambda request: web.Response(
        body=b'{"skus": [', headers={"Content-Encoding": "identity"}, content_type="application/json"
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_wrong_answer_changes_nothing(price_api: PriceApi, tmp_path: Path, wrong: Any) -> None:
    price_api.answers = [wrong]
    prices = open_prices(a_catalog(), settings_for(price_api, tmp_path, attempts=1), rest=Rests())
    assert not await refreshed(prices)
    assert prices.catalog == a_catalog()
    assert prices.problem
    assert not (tmp_path / "cache").exists()


async def test_a_list_that_breaks_off_in_the_middle_changes_nothing(price_api: PriceApi, tmp_path: Path) -> None:
    good = json.dumps({"skus": l4_skus(), "nextPageToken": "more"})
    price_api.answers = [text(good), status(400)]
    prices = open_prices(a_catalog(), settings_for(price_api, tmp_path), rest=Rests())
    assert not await refreshed(prices)
    assert prices.catalog == a_catalog()


async def test_an_absurd_price_leaves_the_known_one_and_the_rest_is_used(price_api: PriceApi, tmp_path: Path) -> None:
    price_api.skus = l4_skus(spot_gpu_nanos=1)
    price_api.skus[4]["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["nanos"] = 1
    prices = open_prices(a_catalog(), settings_for(price_api, tmp_path))
    assert await refreshed(prices)
    assert prices.catalog.offers[0].spot_micro_usd_per_hour == 512_000
    assert prices.catalog.offers[0].on_demand_micro_usd_per_hour == 853_608


async def test_where_nobody_may_ask_nothing_is_asked_and_the_reason_is_known(
    price_api: PriceApi, tmp_path: Path
) -> None:
    prices = open_prices(a_catalog(), settings_for(price_api, tmp_path, api_key=None))
    await asyncio.wait_for(prices.run(), 5)
    assert "TRADEWIND_PRICES_API_KEY" in prices.problem
    assert price_api.asked == []


async def test_it_continues_refreshing_and_tries_sooner_after_a_failure(price_api: PriceApi, tmp_path: Path) -> None:
    price_api.answers = [status(403)]
    rests = Rests()
    prices = open_prices(a_catalog(), settings_for(price_api, tmp_path), rest=rests)
    running = asyncio.create_task(prices.run(), name="prices")
    await eventually(lambda: len(rests.taken) >= 2, what="two rounds")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert rests.taken[:2] == [900.0, 86400.0]
    assert prices.problem == ""


def a_list(date: str) -> PriceList:
    offer = an_offer()
    price = Price(offer.region, offer.machine_type, offer.accelerator, True, MicroDollars(300_000))
    return PriceList(date, "a test", (price,))


def test_what_was_kept_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "prices.json"
    assert cache.save(path, a_list("2026-09-01")) is None
    assert cache.load(path) == a_list("2026-09-01")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 9, "date": "2026-09-01", "prices": []}'])
def test_a_file_that_cannot_be_used_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "prices.json"
    path.write_bytes(content)
    prices = open_prices(a_catalog(), PriceSettings(cache=str(path)))
    assert prices.catalog == a_catalog()
    assert prices.problem == cache.load(path)
    assert str(path) in prices.problem


def test_newer_data_of_the_program_goes_before_older_fetched_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    cache.save(path, a_list("2026-08-21"))
    assert open_prices(a_catalog(), PriceSettings(cache=str(path))).catalog == a_catalog()
    cache.save(path, a_list("2026-08-23"))
    assert open_prices(a_catalog(), PriceSettings(cache=str(path))).catalog.date == "2026-08-23"


def test_a_folder_that_cannot_be_written_is_told_and_no_half_file_is_left(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    reported = cache.save(blocked / "prices.json", a_list("2026-09-01"))
    assert reported is not None
    assert str(blocked / "prices.json") in reported
    assert cache.load(blocked / "prices.json") != a_list("2026-09-01")

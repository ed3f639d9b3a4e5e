"""`tradewind offers`: from a master if one answers, otherwise from the shipped data."""

import json
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

import msgspec
import pytest
from aiohttp import web

from controlplane.catalog.memory import Granted, Memory, StockedOut, Taken, learn
from controlplane.catalog.views import offer_list
from messages.offers import OfferList
from tests.catalog.builders import a_catalog, an_offer
from tests.cli.answering import answering
from tests.cli.builders import no_master
from tests.cli.command import Outcome, tradewind
from tradewind.cli.offers import no_observations

ENABLE = "Run: gcloud services enable cloudbilling.googleapis.com"
NOW = 1_800_000_000.0
Serve = Callable[[web.Response], None]


@pytest.fixture
async def master() -> AsyncIterator[tuple[dict[str, str], Serve]]:
    """The master's environment, and a function that sets its answer; the first answer is 404."""
    answers = [web.Response(status=HTTPStatus.NOT_FOUND, text="404: Not Found")]

    async def offers(request: web.Request) -> web.Response:
        return answers[-1]

    async with answering(offers) as environ:
        yield environ, answers.append


async def alone(*arguments: str) -> Outcome:
    return await tradewind("offers", *arguments, environ=no_master())


async def test_without_a_master_the_shipped_prices_are_shown_and_one_line_says_what_is_missing() -> None:
    done = await alone("--gpu", "A100", "--region", "us-")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == [
        "ZONE",
        "GPU",
        "GPUS",
        "GIB/GPU",
        "MACHINE",
        "SPOT",
        "ON",
        "DEMAND",
        "SPOT/GPU",
        "SEEN",
        "LIVES",
    ]
    rows = [line.split() for line in lines[2:] if line.startswith("us-")]
    assert {row[1] for row in rows} == {"A100-40", "A100-80"}
    assert all(row[-2:] == ["–", "–"] for row in rows)
    by_gpu = [float(row[7]) for row in rows]
    assert by_gpu == sorted(by_gpu)
    assert "2026-08-22" in lines[-1]
    assert done.err.count("\n") == 1
    assert done.err.startswith(no_observations(""))


async def test_json_is_one_object_with_exact_prices() -> None:
    done = await alone("--gpu", "l4", "--region", "us-central1-a", "--json")
    reported = msgspec.json.decode(done.out, type=OfferList)
    assert {offer.zone for offer in reported.offers} == {"us-central1-a"}
    assert reported.offers[0].spot_micro_usd_per_hour is not None
    assert json.loads(done.out)["remembers"] is False


async def test_a_master_tells_what_was_seen(master: tuple[dict[str, str], Serve]) -> None:
    environ, serve = master
    memory = Memory()
    for _ in range(6):
        memory = learn(memory, Granted("us-central1-a", "L4", NOW))
        memory = learn(memory, Taken("us-central1-a", "L4", NOW, 7200.0))
    memory = learn(memory, StockedOut("us-central1-a", "L4", NOW))
    reported = offer_list(a_catalog(an_offer(), an_offer("us-east1-b")), memory, NOW)
    serve(web.Response(body=msgspec.json.encode(reported), content_type="application/json"))
    done = await tradewind("offers", environ=environ)
    seen, unseen = (line.split() for line in done.out.splitlines()[2:4])
    assert done.err == ""
    assert seen[-3:] == ["82%", "2", "h"]
    assert unseen[-2:] == ["–", "–"]


async def test_prices_that_could_not_be_refreshed_are_shown_with_the_reason(
    master: tuple[dict[str, str], Serve],
) -> None:
    environ, serve = master
    reported = msgspec.structs.replace(offer_list(a_catalog(), Memory(), NOW), not_refreshed=ENABLE)
    serve(web.Response(body=msgspec.json.encode(reported), content_type="application/json"))
    done = await tradewind("offers", environ=environ)
    assert "2026-08-22" in done.out
    assert done.err.count("\n") == 1 and done.err.endswith(f": {ENABLE}\n")


async def test_a_master_that_does_not_know_offers_yet_is_no_hindrance(master: tuple[dict[str, str], Serve]) -> None:
    environ, _ = master
    done = await tradewind("offers", "--gpu", "H100", environ=environ)
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert "a3-highgpu-8g" in done.out


async def test_an_unknown_accelerator_is_told_with_those_that_are_known() -> None:
    done = await alone("--gpu", "K80")
    assert done.code == 2
    assert "'K80'" in done.error and "A100-40," in done.hint


@pytest.mark.parametrize(("region", "reported"), [("mars-1", "asia-east1,"), ("us-west2", "us-west2")])
async def test_a_place_without_offers_is_told(region: str, reported: str) -> None:
    done = await alone("--gpu", "H100", "--region", region)
    assert done.code == 2
    assert reported in done.error and ("asia-east1," in done.error) == (region == "mars-1")


def test_of_a_zone_of_which_nothing_was_seen_nothing_is_said() -> None:
    (view,) = offer_list(a_catalog(), Memory(), NOW).offers
    assert (view.availability, view.mean_lifetime_s) == (None, None)

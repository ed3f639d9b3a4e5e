"""Tokens are cached, renewed early and renewed after a refusal; no call waits without need."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from controlplane.clouds.gke.failures import CallFailed, Code
from controlplane.clouds.gke.tokens import AccessTokens, FetchedToken
from tests.conftest import eventual_answer, eventually


class ManualClock:
    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


class Mint:
    def __init__(self, lifetime_s: float = 3600.0) -> None:
        self.lifetime_s = lifetime_s
        self.made = 0
        self.fails_with: CallFailed | None = None
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()

    def __call__(self) -> FetchedToken:
        assert threading.current_thread() is not threading.main_thread()
        self.asked.set()
        assert self.open.wait(20)
        if self.fails_with is not None:
            raise self.fails_with
        self.made += 1
        return FetchedToken(f"token-{self.made}", self.lifetime_s)


def away() -> CallFailed:
    return CallFailed(Code.UNAVAILABLE, "nobody there")


async def test_a_token_is_fetched_once_for_many_who_ask_at_once() -> None:
    mint = Mint()
    tokens = AccessTokens(mint, ManualClock())
    got = await asyncio.gather(*(tokens.get() for _ in range(20)))
    assert {token.text for token in got} == {"token-1"}
    assert mint.made == 1


async def test_a_token_is_renewed_ahead_of_time_without_anybody_waiting() -> None:
    mint, clock = Mint(), ManualClock()
    tokens = AccessTokens(mint, clock)
    await tokens.get()
    clock.now_s += 3600 - 100
    mint.open.clear()
    assert (await tokens.get()).text == "token-1"
    mint.open.set()
    await eventually(lambda: mint.made == 2)
    assert (await until_renewed(tokens)) == "token-2"


async def test_an_expired_token_is_waited_for() -> None:
    mint, clock = Mint(), ManualClock()
    tokens = AccessTokens(mint, clock)
    await tokens.get()
    clock.now_s += 3601
    assert (await tokens.get()).text == "token-2"


async def test_a_token_of_five_seconds_is_used_for_most_of_them() -> None:
    mint, clock = Mint(lifetime_s=5), ManualClock()
    tokens = AccessTokens(mint, clock)
    await tokens.get()
    clock.now_s += 2.5
    assert (await tokens.get()).text == "token-1"
    assert mint.made == 1


async def test_while_nobody_answers_the_old_token_is_used_as_long_as_it_lives() -> None:
    mint, clock = Mint(), ManualClock()
    tokens = AccessTokens(mint, clock)
    await tokens.get()
    mint.fails_with = away()
    clock.now_s += 3600 - 100
    assert (await tokens.get()).text == "token-1"
    clock.now_s += 100
    with pytest.raises(CallFailed, match="nobody there"):
        await tokens.get()
    mint.fails_with = None
    assert (await tokens.get()).text == "token-2"


async def test_a_refused_token_is_replaced_once() -> None:
    tokens = AccessTokens(Mint(), ManualClock())
    seen: list[str] = []

    def refusing(count: int) -> Callable[[FetchedToken], "asyncio.Future[str]"]:
        async def call(token: FetchedToken) -> str:
            seen.append(token.text)
            if len(seen) <= count:
                raise CallFailed(Code.UNAUTHENTICATED, "expired")
            return "answer"

        return lambda token: asyncio.ensure_future(call(token))

    assert await tokens.spend(refusing(1)) == "answer"
    assert seen == ["token-1", "token-2"]
    seen.clear()
    with pytest.raises(CallFailed, match="expired"):
        await tokens.spend(refusing(9))
    assert seen == ["token-2", "token-3"]


async def test_any_other_failure_is_not_tried_again() -> None:
    tokens = AccessTokens(Mint(), ManualClock())
    calls = 0

    async def call(_token: FetchedToken) -> str:
        nonlocal calls
        calls += 1
        raise away()

    with pytest.raises(CallFailed):
        await tokens.spend(call)
    assert calls == 1


async def test_who_stops_waiting_for_a_token_spoils_it_for_nobody() -> None:
    mint = Mint()
    mint.open.clear()
    tokens = AccessTokens(mint, ManualClock())
    impatient, patient = asyncio.create_task(tokens.get()), asyncio.create_task(tokens.get())
    await asyncio.sleep(0)
    impatient.cancel()
    mint.open.set()
    assert (await patient).text == "token-1"
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_closing_ends_a_renewal_that_is_under_way() -> None:
    mint = Mint()
    mint.open.clear()
    tokens = AccessTokens(mint, ManualClock())
    waiting = asyncio.create_task(tokens.get())
    await eventually(mint.asked.is_set)
    await tokens.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    mint.open.set()


async def until_renewed(tokens: AccessTokens) -> str:
    renewed = await eventual_answer(tokens.get, lambda token: token.text != "token-1", "a renewed token")
    return renewed.text

"""The loop of every role: events in order, slow effects come back as events, a failed one ends it."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace

import pytest

from runtime import causes, role
from runtime.causes import Cause
from runtime.clock import SystemClock
from runtime.decision import Decision
from runtime.inbox import Inbox
from runtime.role import Overrun, RoleLoop
from tests.conftest import eventually


@dataclass(frozen=True)
class Log:
    seen: tuple[str, ...] = ()


FAILED = "an effect failed"


@dataclass
class Hands:
    """Performs `quick …` at once and `slow …` beside the loop."""

    done: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def perform(self, effect: str) -> Awaitable[str | None] | None:
        if effect.startswith("slow"):
            return self._slowly(effect)
        if effect.startswith("fail"):
            return self._fail()
        self.done.append(effect)
        return None

    async def _slowly(self, effect: str) -> str:
        await self.gate.wait()
        self.done.append(effect)
        return f"{effect} ended"

    async def _fail(self) -> str:
        raise LookupError(FAILED)


def decide(state: Log, event: str) -> Decision[Log, str]:
    state = replace(state, seen=(*state.seen, event))
    effects = tuple(event.removeprefix("do ").split(",")) if event.startswith("do ") else ()
    return Decision(state, effects)


def a_loop(hands: Hands) -> RoleLoop[Log, str, str]:
    return RoleLoop("test", Log(), decide, hands, tick=lambda at_s: "tick", clock=SystemClock())


async def test_events_are_decided_in_the_order_they_came_and_effects_done_in_order() -> None:
    hands = Hands()
    loop = a_loop(hands)
    for number in range(10):
        loop.post(f"do quick {number}a,quick {number}b")
    running = asyncio.create_task(loop.run())
    await eventually(lambda: len(hands.done) == 20)
    running.cancel()
    assert hands.done == [f"quick {number}{part}" for number in range(10) for part in "ab"]
    assert list(loop.state.seen) == [f"do quick {number}a,quick {number}b" for number in range(10)]


async def test_a_slow_effect_does_not_hold_up_the_loop_and_comes_back_as_an_event() -> None:
    hands = Hands()
    loop = a_loop(hands)
    running = asyncio.create_task(loop.run())
    loop.post("do slow a,quick b")
    loop.post("do quick c")
    await eventually(lambda: hands.done == ["quick b", "quick c"])
    hands.gate.set()
    await eventually(lambda: loop.state.seen[-1] == "slow a ended")
    running.cancel()
    assert hands.done == ["quick b", "quick c", "slow a"]


async def test_a_slow_effect_that_fails_ends_the_loop() -> None:
    loop = a_loop(Hands())
    loop.post("do slow a,fail")
    async with asyncio.timeout(20):
        with pytest.raises(ExceptionGroup) as raised:
            await loop.run()
    assert raised.group_contains(LookupError, match=FAILED)


async def test_more_events_than_a_core_can_ever_catch_up_with_end_the_loop_and_none_is_missed_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(role, "EVENTS_AT_MOST", 3)
    loop = a_loop(Hands())
    for number in range(4):
        loop.post(f"event {number}")
    async with asyncio.timeout(20):
        with pytest.raises(ExceptionGroup) as raised:
            await loop.run()
    assert raised.group_contains(role.Overrun, match="^test .*3")
    assert loop.state.seen == ()


async def test_a_decision_that_raises_ends_the_loop() -> None:
    def broken(state: Log, event: str) -> Decision[Log, str]:
        raise LookupError(event)

    loop = RoleLoop("test", Log(), broken, Hands(), tick=lambda at_s: "tick", clock=SystemClock())
    async with asyncio.timeout(20):
        with pytest.raises(ExceptionGroup) as raised:
            await loop.run()
    assert raised.group_contains(LookupError, match="tick")


async def test_cancelling_the_loop_cancels_its_slow_effects() -> None:
    hands = Hands()
    loop = a_loop(hands)
    before = asyncio.all_tasks()
    running = asyncio.create_task(loop.run())
    loop.post("do slow a,quick b")
    await eventually(lambda: hands.done == ["quick b"])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == before


async def test_time_alone_wakes_the_core_when_it_asked_for_it() -> None:
    def ask_twice(state: Log, event: str) -> Decision[Log, str]:
        state = replace(state, seen=(*state.seen, event))
        at_s = SystemClock().monotonic_s() + 0.01
        return Decision(state, wake_at_s=at_s if len(state.seen) < 3 else None)

    loop = RoleLoop("test", Log(), ask_twice, Hands(), tick=lambda at_s: "tick", clock=SystemClock())
    running = asyncio.create_task(loop.run())
    await eventually(lambda: len(loop.state.seen) == 3)
    loop.post("last")
    await eventually(lambda: len(loop.state.seen) == 4)
    running.cancel()
    assert loop.state.seen == ("tick", "tick", "tick", "last")


async def test_every_decision_is_shown_with_its_event() -> None:
    shown: list[tuple[str, str]] = []

    def explained(state: Log, event: str) -> Decision[Log, str]:
        return Decision(state, why=f"because of {event}")

    loop = RoleLoop(
        "test",
        Log(),
        explained,
        Hands(),
        tick=lambda at_s: "tick",
        clock=SystemClock(),
        observers=[lambda events, decision: shown.append((events[0], decision.why))],
    )
    loop.post("x")
    running = asyncio.create_task(loop.run())
    await eventually(lambda: shown)
    running.cancel()
    assert shown[0] == ("x", "because of x")


async def test_effects_have_the_cause_of_their_event_also_slow_ones_and_what_follows_from_them() -> None:
    seen: list[tuple[str, str]] = []

    class Sender(Hands):
        def perform(self, effect: str) -> Awaitable[str | None] | None:
            cause = causes.current()
            seen.append((effect, cause.text if cause is not None else ""))
            return super().perform(effect)

    hands = Sender()
    hands.gate.set()

    def follow_up(state: Log, event: str) -> Decision[Log, str]:
        return Decision(state, ("after",)) if event.endswith("ended") else decide(state, event)

    loop = RoleLoop("test", Log(), follow_up, hands, tick=lambda at_s: "do on tick", clock=SystemClock())
    with causes.caused_by(Cause("m1", "a halt")):
        loop.post("do quick,slow")
    loop.post("do unasked")
    running = asyncio.create_task(loop.run())
    await eventually(lambda: ("after", "a halt") in seen)
    running.cancel()
    assert seen[:3] == [("quick", "a halt"), ("slow", "a halt"), ("unasked", "")]


async def test_an_inbox_holds_events_with_their_causes_until_it_is_opened() -> None:
    taken: list[tuple[str, str]] = []

    def take(event: str) -> None:
        cause = causes.current()
        taken.append((event, cause.text if cause is not None else ""))

    inbox = Inbox[str]()
    with causes.caused_by(Cause("m1", "a halt")):
        inbox.post("first")
    inbox.post("second")
    assert taken == []
    inbox.open(take)
    inbox.post("third")
    assert taken == [("first", "a halt"), ("second", ""), ("third", "")]


async def test_an_inbox_that_missed_events_does_not_open() -> None:
    inbox = Inbox[str](at_most=2)
    for event in ("first", "second", "third"):
        inbox.post(event)
    with pytest.raises(Overrun, match="2 events"):
        inbox.open(lambda event: None)


async def test_a_core_that_can_decides_on_all_events_that_wait_at_once() -> None:
    batches: list[tuple[str, ...]] = []

    def together(state: Log, *events: str) -> Decision[Log, str]:
        batches.append(events)
        return Decision(state)

    loop = RoleLoop("test", Log(), together, Hands(), lambda at_s: "tick", SystemClock(), batch_at_most=3)
    for number in range(5):
        loop.post(f"event {number}")
    running = asyncio.create_task(loop.run())
    await eventually(lambda: len(batches) == 2)
    running.cancel()
    assert [len(batch) for batch in batches] == [3, 2]
    assert [event for batch in batches for event in batch] == [f"event {number}" for number in range(5)]


async def test_a_loop_that_finds_events_late_says_so_before_them() -> None:
    batches: list[tuple[str, ...]] = []

    def together(state: Log, *events: str) -> Decision[Log, str]:
        batches.append(events)
        return Decision(state)

    class Slow(SystemClock):
        now_s = 0.0

        def monotonic_s(self) -> float:
            return self.now_s

    clock = Slow()
    loop = RoleLoop(
        "test", Log(), together, Hands(), lambda at_s: "tick", clock, behind=lambda at_s: f"late at {at_s:g} s"
    )
    loop.post("event")
    clock.now_s = 2.0
    running = asyncio.create_task(loop.run())
    await eventually(lambda: batches)
    running.cancel()
    assert batches[0] == ("late at 2 s", "event")

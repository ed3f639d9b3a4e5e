"""The lease on a real server: processes that are killed, paused and asked to end, a server that is restarted."""

import asyncio
import contextlib
import shutil
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controlplane.lease.decide import EXPIRED, stuck_for
from controlplane.lease.keeper import Leadership, Onlooker, hold
from controlplane.lease.renewer import Renewer
from controlplane.lease.state import LeaseSettings
from messages.records import LeaseRecord
from runtime.bus import Bus
from runtime.children import free_port
from runtime.clock import SystemClock
from runtime.errors import BusAway, Conflict
from runtime.kv import config_of
from runtime.kv_ttl import ExpiringKey, Forgotten, Version
from runtime.nats_server import NatsServer
from runtime.process import known_error
from runtime.settings import BusSettings
from runtime.streams import ensure
from tests.conftest import Connect, eventual_answer, eventually
from tests.lease.run_master import ACT_EVERY_S

BUCKET, KEY = "tradewind", "leader"
LEASE_S = LeaseSettings().ttl_s


@dataclass(frozen=True, slots=True)
class Line:
    at_s: float
    name: str
    what: str
    epoch: int


class Masters:
    """Real processes that write to one log file."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._diary = folder / "diary"
        self._diary.touch()
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        self.processes[name] = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.lease.run_master", self._url, name, str(self._diary)
        )

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def lines(self) -> list[Line]:
        found = []
        for line in self._diary.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                at_s, name, what, epoch = line.split()
                found.append(Line(float(at_s), name, what, int(epoch)))
        return sorted(found, key=lambda line: line.at_s)

    def acting(self, since_s: float = 0.0) -> str | None:
        """The process that acted last."""
        acts = [line.name for line in self.lines() if line.what == "acts" and line.at_s > since_s]
        return acts[-1] if acts else None

    async def until_acts(self, name: str, since_s: float = 0.0) -> None:
        await eventually(lambda: self.acting(since_s) == name, what=f"{name} acts")

    async def until_renewed(self) -> None:
        """Waits until one process acts for longer than a lease lasts."""
        last = len(self.lines()) + 1.2 * LEASE_S / ACT_EVERY_S
        await eventually(lambda: len(self.lines()) >= last, what="the lease is renewed")

    def check(self) -> None:
        """Checks that never two act at once: each action has the highest epoch so far."""
        epochs = [line.epoch for line in self.lines() if line.what == "acts"]
        assert epochs == sorted(epochs)
        leaders = {line.epoch: line.name for line in self.lines() if line.what == "leads"}
        assert len(leaders) == sum(line.what == "leads" for line in self.lines())

    async def two(self) -> tuple[str, str]:
        """The leader and the standby."""
        await self.start("a")
        await self.start("b")
        await eventually(lambda: len({line.name for line in self.lines()}) == 2, what="both are there")
        await eventually(lambda: self.acting() is not None, what="one acts")
        leader = str(self.acting())
        return leader, "b" if leader == "a" else "a"

    async def end(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.fixture
async def masters(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Masters]:
    started = Masters(nats_server.url, tmp_path)
    yield started
    await started.end()


async def test_of_two_masters_one_acts_and_the_other_takes_over_when_it_is_killed(masters: Masters) -> None:
    leader, standby = await masters.two()
    await masters.until_renewed()
    killed_s = time.monotonic()
    masters.signal(leader, signal.SIGKILL)
    await masters.until_acts(standby, since_s=killed_s)
    masters.check()


async def test_a_leader_that_is_asked_to_end_gives_the_lease_up(masters: Masters) -> None:
    leader, standby = await masters.two()
    masters.signal(leader, signal.SIGTERM)
    assert await masters.processes[leader].wait() == 0
    await masters.until_acts(standby)
    masters.check()


async def test_a_paused_leader_that_comes_back_does_not_act(masters: Masters) -> None:
    leader, standby = await masters.two()
    masters.signal(leader, signal.SIGSTOP)
    paused_s = time.monotonic()
    await masters.until_acts(standby, since_s=paused_s)
    masters.signal(leader, signal.SIGCONT)
    await eventually(
        lambda: any(line.what == "lost" and line.name == leader for line in masters.lines()), what="it knows"
    )
    await asyncio.sleep(0.5)
    masters.check()


async def somebody_acts(masters: Masters, since_s: float) -> None:
    await eventually(lambda: masters.acting(since_s) is not None, what="somebody acts")


async def test_after_a_restart_of_the_server_one_leads_again(masters: Masters, nats_server: NatsServer) -> None:
    await masters.two()
    for away_s in (0.1, 3.0):
        await nats_server.kill()
        await asyncio.sleep(away_s)
        await nats_server.start()
        await somebody_acts(masters, time.monotonic() + 0.5)
    masters.check()


async def test_nobody_acts_while_the_server_is_away(masters: Masters, nats_server: NatsServer) -> None:
    leader, _ = await masters.two()
    await nats_server.kill()
    await eventually(
        lambda: any(line.what == "lost" and line.name == leader for line in masters.lines()), what="it gives up"
    )
    last = masters.lines()[-1]
    await asyncio.sleep(0.5)
    assert masters.lines()[-1] == last
    masters.check()


# In one process


@dataclass
class Told(Onlooker):
    why: list[str] = field(default_factory=list)
    holders: list[tuple[LeaseRecord | None, bool]] = field(default_factory=list)
    forgot: int = 0

    def lost(self, why: str) -> None:
        self.why.append(why)

    def saw(self, holder: LeaseRecord | None, *, ours: bool) -> None:
        if not self.holders or self.holders[-1] != (holder, ours):
            self.holders.append((holder, ours))

    def forgotten(self) -> None:
        self.forgot += 1


async def a_key(bus: Bus) -> ExpiringKey:
    return await bus.expiring_key(BUCKET, KEY)


async def test_a_key_expires_unless_it_is_written_again(bus: Bus) -> None:
    key = await a_key(bus)
    revision = await key.write(b"me", revision=0, ttl_s=2, timeout_s=5.0)
    written_s = time.monotonic()
    while time.monotonic() < written_s + 2.5:
        await asyncio.sleep(0.1)
        revision = await key.write(b"me", revision=revision, ttl_s=2, timeout_s=5.0)
    assert await key.read(5.0) == Version(revision, b"me")
    await eventual_answer(lambda: key.read(5.0), lambda version: version.value is None, "the key expires")
    assert await key.write(b"you", revision=0, ttl_s=1, timeout_s=5.0) > revision


async def test_a_key_is_written_only_at_the_revision_that_is_expected(bus: Bus) -> None:
    key = await a_key(bus)
    revision = await key.write(b"me", revision=0, ttl_s=5, timeout_s=5.0)
    with pytest.raises(Conflict):
        await key.write(b"you", revision=0, ttl_s=5, timeout_s=5.0)
    with pytest.raises(Conflict):
        await key.write(b"you", revision=revision + 1, ttl_s=5, timeout_s=5.0)
    await key.remove(revision=revision, timeout_s=5.0)
    gone = await key.read(5.0)
    assert gone.value is None
    assert await key.write(b"you", revision=gone.revision, ttl_s=5, timeout_s=5.0) > gone.revision


async def test_a_follower_sees_writes_removals_and_where_there_are_markers_expiry(bus: Bus) -> None:
    marked = config_of("marked", 1_000_000)
    marked.subject_delete_marker_ttl = 60
    await ensure(bus._link, marked, 5.0)
    key = ExpiringKey(bus._link, "marked", KEY)
    first = await key.write(b"1", revision=0, ttl_s=30, timeout_s=5.0)
    async with asyncio.timeout(20.0), contextlib.aclosing(key.follow()) as versions:
        assert await anext(versions) == Version(first, b"1")
        await key.remove(revision=first, timeout_s=5.0)
        assert await anext(versions) == Version(first + 1, None)
        third = await key.write(b"3", revision=first + 1, ttl_s=1, timeout_s=5.0)
        assert await anext(versions) == Version(third, b"3")
        expired = await anext(versions)
    assert expired == Version(third + 1, None)
    assert await key.write(b"5", revision=third + 1, ttl_s=1, timeout_s=5.0) > third


async def test_work_runs_while_the_lease_is_held_and_its_result_is_returned(bus: Bus) -> None:
    async def work(leadership: Leadership) -> tuple[int, bool]:
        return leadership.epoch, leadership.may_act()

    epoch, could_act = await hold(bus.settings, "a", work)
    assert could_act
    left = await (await a_key(bus)).read(5.0)
    assert left.value is None
    assert left.revision > epoch


async def test_work_is_cancelled_when_the_key_is_taken_away_and_begins_again_later(bus: Bus) -> None:
    key = await a_key(bus)
    epochs: list[int] = []
    reported = Told()
    ends: list[bool] = []

    async def work(leadership: Leadership) -> None:
        epochs.append(leadership.epoch)
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(leadership.may_act())

    holding = asyncio.get_running_loop().create_task(
        hold(bus.settings, "a", work, url="http://a:8800", onlooker=reported), name="hold"
    )
    await eventually(lambda: len(epochs) == 1)
    taken = False
    while not taken:
        with contextlib.suppress(Conflict):
            await key.remove(revision=(await key.read(5.0)).revision, timeout_s=5.0)
            taken = True
    await eventually(lambda: len(epochs) == 2)
    assert epochs[1] > epochs[0]
    assert (reported.why, ends) == ([EXPIRED], [False])
    assert [(holder.url if holder is not None else None, ours) for holder, ours in reported.holders[:2]] == [
        ("http://a:8800", True),
        (None, False),
    ]
    holding.cancel()
    await asyncio.wait({holding})
    assert (await key.read(5.0)).value is None


async def test_what_the_work_raises_comes_out_and_the_lease_is_given_up(bus: Bus) -> None:
    async def work(leadership: Leadership) -> None:
        raise ValueError("broken")

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await hold(bus.settings, "a", work)
    assert (await (await a_key(bus)).read(5.0)).value is None


async def test_a_key_that_somebody_else_wrote_for_ever_is_taken_over(connect: Connect) -> None:
    bus = await connect("a")
    bucket = await bus.bucket(BUCKET)
    await bucket.put(KEY, b"not a lease")

    async def work(leadership: Leadership) -> int:
        return leadership.epoch

    async with asyncio.timeout(20.0):
        assert await hold(bus.settings, "a", work) > 1


async def test_a_bus_that_lost_its_data_ends_the_work_and_is_led_again(bus: Bus, nats_server: NatsServer) -> None:
    epochs: list[int] = []
    reported = Told()

    async def work(leadership: Leadership) -> None:
        epochs.append(leadership.epoch)
        await asyncio.Event().wait()

    await bus.bucket(BUCKET)
    holding = asyncio.get_running_loop().create_task(hold(bus.settings, "a", work, onlooker=reported), name="hold")
    await eventually(lambda: len(epochs) == 1)
    await nats_server.kill()
    shutil.rmtree(nats_server.folder)
    await nats_server.start()
    await eventually(lambda: len(epochs) == 2)
    assert epochs[1] > epochs[0], "whoever is fenced by the epochs of the lost bus hears the new leader"
    await eventually(lambda: reported.forgot == 1)
    holding.cancel()
    await asyncio.wait({holding})


# A main loop that is busy or stuck


def compute_until(done: Callable[[], bool], at_most_s: float) -> bool:
    """Blocks the event loop and the interpreter like a long computation. True if it ended in time."""
    until_s = time.monotonic() + at_most_s
    while not done():
        if time.monotonic() >= until_s:
            return False
        sum(range(1000))
    return True


async def test_a_main_loop_that_computes_for_5_s_keeps_the_lease(bus: Bus, masters: Masters) -> None:
    reported = Told()

    async def work(leadership: Leadership) -> tuple[bool, str | None]:
        await masters.start("b")
        await eventually(lambda: masters.lines(), what="the standby is there")
        lost = compute_until(lambda: not leadership.may_act(), 5.0)
        return lost, masters.acting()

    lost, acting_meanwhile = await hold(bus.settings, "a", work, onlooker=reported)
    assert (lost, reported.why, acting_meanwhile) == (False, [], None)
    await masters.until_acts("b")


async def test_a_main_loop_that_is_stuck_for_longer_than_the_limit_loses_the_lease(bus: Bus, masters: Masters) -> None:
    reported = Told()
    held: list[bool] = []

    async def work(leadership: Leadership) -> None:
        await masters.start("b")
        await eventually(lambda: masters.lines(), what="the standby is there")
        assert compute_until(lambda: not leadership.may_act(), 20.0)
        assert masters.acting() is None
        assert compute_until(lambda: masters.acting() == "b", 20.0)
        try:
            await asyncio.Event().wait()
        finally:
            held.append(leadership.may_act())

    limited = LeaseSettings(ttl_s=1, stuck_after_s=0.8)
    holding = asyncio.create_task(hold(bus.settings, "a", work, settings=limited, onlooker=reported), name="hold")
    await eventually(lambda: held)
    assert held == [False]
    assert reported.why[0].startswith(stuck_for(0.0).partition("0.0")[0])
    assert not holding.done(), "it is a standby again"
    holding.cancel()
    await asyncio.wait({holding})


# The thread of the lease


class FragileClock(SystemClock):
    """A clock that raises in the thread of the lease once it is broken."""

    def __init__(self) -> None:
        self.is_broken = False

    def monotonic_s(self) -> float:
        if self.is_broken and threading.current_thread().name == "lease":
            raise ZeroDivisionError("no time")
        return super().monotonic_s()


def lease_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lease"]


async def test_an_error_in_the_thread_cancels_the_work_and_comes_out(bus: Bus) -> None:
    clock = FragileClock()
    ended: list[bool] = []

    async def work(leadership: Leadership) -> None:
        clock.is_broken = True
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(ExceptionGroup) as raised:
        await hold(bus.settings, "a", work, clock=clock)
    assert raised.value.subgroup(ZeroDivisionError) is not None
    assert ended == [True]
    await eventually(lambda: not lease_threads())
    assert (await (await a_key(bus)).read(5.0)).value is not None, "the key expires: the work ran until the end"


async def test_a_lease_that_is_cancelled_is_given_up_when_the_work_has_ended(bus: Bus) -> None:
    key = await a_key(bus)
    left: list[bytes | None] = []

    async def work(leadership: Leadership) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            left.append((await key.read(5.0)).value)

    for began in (False, True):
        holding = asyncio.create_task(hold(bus.settings, "a", work), name="hold")
        await eventually(lambda: lease_threads())
        if began:
            await eventual_answer(lambda: key.read(5.0), lambda version: version.value is not None, "it leads")
        holding.cancel()
        await asyncio.wait({holding})
        await eventually(lambda: not lease_threads())
        assert (await key.read(5.0)).value is None
    assert None not in left


class LateAnswers(ExpiringKey):
    """The key of the bus; a write is done at once, but its answer waits, and no change is followed."""

    def __init__(self, key: ExpiringKey) -> None:
        self.__dict__.update(key.__dict__)
        self.is_written = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def write(self, value: bytes, *, revision: int, ttl_s: int, timeout_s: float) -> int:
        written = await super().write(value, revision=revision, ttl_s=60, timeout_s=timeout_s)
        self.is_written.set()
        await self.may_answer.wait()
        return written

    async def follow(self) -> AsyncGenerator[Version | Forgotten, None]:
        await asyncio.Event().wait()
        yield Forgotten()


async def test_a_key_is_released_if_the_lease_is_cancelled_before_the_answer_to_its_write(bus: Bus) -> None:
    key = LateAnswers(await a_key(bus))
    record, clock = LeaseRecord("a", 0.0, ""), SystemClock()
    renewer = Renewer(bus, key, record, LeaseSettings(), clock, clock.monotonic_s, lambda notice: None)
    renewing = asyncio.create_task(renewer.run())
    await key.is_written.wait()
    renewing.cancel()
    key.may_answer.set()
    await asyncio.wait({renewing})
    assert (await key.read(5.0)).value is None


async def test_a_bus_that_cannot_be_reached_comes_out_as_a_sentence() -> None:
    async def work(leadership: Leadership) -> None:
        raise AssertionError("it cannot lead")

    nowhere = BusSettings(url=f"nats://127.0.0.1:{free_port()}", name="a", connect_timeout_s=0.5)
    with pytest.raises(ExceptionGroup) as raised:
        await hold(nowhere, "a", work)
    assert isinstance(known_error(raised.value), BusAway)

"""The trainers' socket: who attaches, what is dropped, and who is cut off."""

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.worker import trainer_socket as module
from agents.worker.commands import Enter, Lease, Park
from agents.worker.sockets import PATH_BYTES
from agents.worker.trainer import Birth
from agents.worker.trainer_socket import Trainers, socket_for
from agents.worker.translation import order_of
from messages.ids import Generation, Rank
from messages.worlds import Entry, LiveWorld, StoreAddress
from runtime.errors import UserError
from tests.conftest import eventually
from tests.worker.builders import OWN, a_member, an_assignment
from tests.worker.fakes import SECONDS
from tradewind.protocol import trainer as wire

BIRTH: Birth = (Generation(1), Rank(3))
ATTACH = {"type": "attach", "generation": 1, "rank": 3, "local_rank": 1, "pid": 77}


class Heard:
    def __init__(self) -> None:
        self.messages: list[tuple[Birth, wire.TrainerMessage | None]] = []
        self.trainers = Trainers(lambda birth, message: self.messages.append((birth, message)))

    async def until(self, count: int) -> list[wire.TrainerMessage | None]:
        await eventually(lambda: len(self.messages) >= count, SECONDS, f"{count} messages")
        return [message for _, message in self.messages]


@pytest.fixture
async def heard(tmp_path: Path) -> AsyncIterator[Heard]:
    heard = Heard()
    async with heard.trainers.serving(tmp_path / "t.sock", to_others=False):
        yield heard


class Client:
    """A trainer's end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def sends(self, *messages: object) -> None:
        self.writer.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def hears(self) -> dict[str, object]:
        async with asyncio.timeout(SECONDS):
            sent: dict[str, object] = json.loads(await self.reader.readline())
        return sent

    async def cut_off(self) -> None:
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass


@contextlib.asynccontextmanager
async def a_client(path: Path) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def test_an_attached_trainer_is_heard_and_told(heard: Heard, tmp_path: Path) -> None:
    async with a_client(tmp_path / "t.sock") as client:
        client.sends(
            ATTACH, {"type": "status", "rank": 3, "generation": 1, "done": 4, "held": [[0, 2]], "active": True}
        )
        client.sends({"type": "progress", "generation": 1, "rank": 3, "reports": [{"step": 3, "loss": 0.5}]})
        attach, said, progress = await heard.until(3)
        assert {birth for birth, _ in heard.messages} == {BIRTH}
        assert isinstance(attach, wire.Attach)
        assert isinstance(said, wire.Status)
        assert (said.done, said.held, said.active) == (4, ((0, 2),), True)
        assert isinstance(progress, wire.Progress)
        assert [(report.step, report.loss) for report in progress.reports] == [(3, 0.5)]

        heard.trainers.tell(BIRTH, wire.Halt(Generation(2)))
        assert await client.hears() == {"type": "halt", "generation": 2}


async def test_a_connection_that_ends_is_told_and_its_last_status_is_kept_until_the_exit(
    heard: Heard, tmp_path: Path
) -> None:
    async with a_client(tmp_path / "t.sock") as client:
        client.sends(ATTACH, {"type": "status", "rank": 0, "generation": 2})
        await heard.until(2)
    assert (await heard.until(3))[-1] is None
    newest = heard.trainers.newest(BIRTH)
    assert newest is not None
    assert newest.generation == 2
    heard.trainers.forget(BIRTH)
    assert heard.trainers.newest(BIRTH) is None
    heard.trainers.tell(BIRTH, wire.Halt(Generation(3)))


async def test_a_trainer_that_attaches_twice_has_one_place_and_is_not_told_as_gone(
    heard: Heard, tmp_path: Path
) -> None:
    async with a_client(tmp_path / "t.sock") as first:
        first.sends(ATTACH)
        await heard.until(1)
        async with a_client(tmp_path / "t.sock") as second:
            second.sends(ATTACH)
            await first.cut_off()
            heard.trainers.tell(BIRTH, wire.Lease(2.0))
            assert (await second.hears())["type"] == "lease"
            assert None not in await heard.until(2)
    assert (await heard.until(3))[-1] is None


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"type": "halt", "generation": 1}',
        b'{"type": "status", "generation": -1}',
        b'{"type": "status", "held": [[0]]}',
        b'{"type": "status", "done": 1e300}',
        b'{"type": "attach", "generation": 9, "rank": 9}',
        b"[" * 100_000,
        b"",
    ],
)
async def test_what_cannot_be_understood_is_dropped_and_counted(heard: Heard, tmp_path: Path, line: bytes) -> None:
    async with a_client(tmp_path / "t.sock") as client:
        client.sends(ATTACH)
        client.writer.write(line + b"\n")
        client.sends({"type": "status", "done": 5, "a_field_of_tomorrow": 1})
        messages = await heard.until(2)
        assert isinstance(messages[1], wire.Status)
        assert heard.trainers.dropped["trainer_message_dropped"] == 1


async def test_the_one_that_does_not_begin_by_attaching_is_not_heard(heard: Heard, tmp_path: Path) -> None:
    async with a_client(tmp_path / "t.sock") as client:
        client.sends({"type": "status", "done": 5}, ATTACH)
        assert isinstance((await heard.until(1))[0], wire.Attach)
        assert heard.trainers.dropped["trainer_message_dropped"] == 1


async def test_the_one_that_never_attaches_is_cut_off(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTACH_S", 0.05)
    async with a_client(tmp_path / "t.sock") as client:
        await client.cut_off()
    assert heard.trainers.dropped["trainer_cut_off"] == 1
    assert heard.messages == []


async def test_a_line_without_end_is_cut_off(heard: Heard, tmp_path: Path) -> None:
    async with a_client(tmp_path / "t.sock") as client:
        client.sends(ATTACH)
        client.writer.write(b"x" * (wire.MESSAGE_LIMIT_BYTES + 70_000))
        await client.cut_off()
    assert (await heard.until(2))[-1] is None
    assert heard.trainers.dropped["trainer_cut_off"] == 1


async def test_a_trainer_that_does_not_read_is_cut_off(heard: Heard, tmp_path: Path) -> None:
    async with a_client(tmp_path / "t.sock") as client:
        client.sends(ATTACH)
        await heard.until(1)
        word = wire.Assign(Generation(1), Rank(0), 1, "start", wire.Store("", 1, ""), address="x" * 1_000_000)
        for _ in range(8):
            heard.trainers.tell(BIRTH, word)
        assert (await heard.until(2))[-1] is None
    assert heard.trainers.dropped["trainer_cut_off"] == 1


async def test_there_is_room_for_so_many_and_no_more(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MOST", 1)
    async with a_client(tmp_path / "t.sock") as first:
        first.sends(ATTACH)
        await heard.until(1)
        async with a_client(tmp_path / "t.sock") as second:
            await second.cut_off()
        heard.trainers.tell(BIRTH, wire.Lease(2.0))
        assert (await first.hears())["type"] == "lease"


async def test_the_end_of_the_agent_is_the_end_of_all_connections(tmp_path: Path) -> None:
    heard = Heard()
    path = tmp_path / "t.sock"
    path.write_text("left behind")
    async with contextlib.AsyncExitStack() as stack:
        async with heard.trainers.serving(path, to_others=False):
            client = await stack.enter_async_context(a_client(path))
            client.sends(ATTACH)
            await heard.until(1)
        await client.cut_off()
        assert not path.exists()


async def test_trainers_of_another_user_may_come_in_only_where_they_have_to(tmp_path: Path) -> None:
    for to_others in (False, True):
        folder = tmp_path / str(to_others)
        folder.mkdir(mode=0o700)
        async with Heard().trainers.serving(folder / "t.sock", to_others=to_others):
            assert (stat.S_IMODE(folder.stat().st_mode) == 0o711) is to_others
            assert (stat.S_IMODE((folder / "t.sock").stat().st_mode) == 0o666) is to_others


async def test_a_path_that_is_too_long_for_a_socket_is_shortened_unless_another_container_has_to_see_it(
    tmp_path: Path,
) -> None:
    long = tmp_path / ("x" * 100)
    async with socket_for(long, elsewhere=False) as path:
        assert len(str(path)) <= PATH_BYTES
        assert path.parent.is_dir()
    with pytest.raises(UserError, match="too long"):
        async with socket_for(long, elsewhere=True):
            pass
    async with socket_for(Path("/run/w1"), elsewhere=True) as path:
        assert path == Path("/run/w1/trainers.sock")


def test_words_are_said_as_the_sdk_reads_them() -> None:
    store = StoreAddress("10.0.0.1", 29500, "g2")
    members = (a_member(OWN, 0, 2),)
    started = Enter(an_assignment(2, *members, store=store), Rank(1))
    said = json.loads(wire.encode_order(order_of(started, "10.0.0.7")))
    assert said == {
        "type": "assign",
        "generation": 2,
        "rank": 1,
        "world_size": 2,
        "entry": "start",
        "address": "10.0.0.7",
        "store": {"host": "10.0.0.1", "port": 29500, "prefix": "g2"},
        "leaves": False,
        "peers": [],
        "previous": [],
        "resume": 0,
        "source": 0,
        "laggards": [],
        "held": [],
    }

    live = LiveWorld(Entry.REPAIR, (1, -1), (), 7, Rank(1), (Rank(0),), (((0, 3),), ()))
    repaired = Enter(an_assignment(3, *members, store=store, live=live), Rank(0))
    said = json.loads(wire.encode_order(order_of(repaired, "10.0.0.7")))
    chosen = ("entry", "previous", "resume", "source", "laggards", "held", "leaves")
    assert [said[name] for name in chosen] == ["repair", [1, -1], 7, 1, [0], [[[0, 3]], []], False]
    assert said["peers"] == list(dict.fromkeys(member.address for member in members)), "each address once"

    assert json.loads(wire.encode_order(order_of(Park(Generation(4)), ""))) == {"type": "halt", "generation": 4}
    assert json.loads(wire.encode_order(order_of(Lease(2.0), ""))) == {"type": "lease", "valid_s": 2.0}

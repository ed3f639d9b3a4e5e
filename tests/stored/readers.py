"""Every reader of stored or received data, each with a valid document."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agents.cluster.shell import KnownRecord
from agents.cluster.state import Known, KnownGone, KnownPlace
from agents.worker import leftovers, stored
from agents.worker.worlds import WorldCache
from controlplane.catalog import cache, memory_records
from controlplane.catalog.memory import Memory, StockedOut, learn
from controlplane.jobs import records
from controlplane.lease.renewer import read_record
from controlplane.ledger.records import LedgerUnreadable, decode_ledger, encode_ledger
from controlplane.ledger.state import Ledger
from controlplane.reaper.claims import claim_of
from messages import codec
from messages.ids import ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.jobs import Launch
from messages.records import LeaseRecord, Phase, Record, encode_record
from messages.workers import WorkerParked, WorkerPhase, WorkerStatus
from messages.worlds import Assignment, Member, StoreAddress
from runtime.bus import Bucket, Entry
from runtime.clock import SystemClock
from runtime.kv_ttl import Version
from tests.ledger.builders import a_ledger, a_life, a_look, at
from tests.master.process import a_spec
from tradewind.protocol import host, trainer
from tradewind.protocol.lines import Unreadable

JOB, CLUSTER = JobName("job"), ClusterName("local")


@dataclass(frozen=True, slots=True)
class Reader:
    honest: bytes
    read: Callable[[bytes], object]
    """The fallback that it returns for hostile bytes."""
    refuses_with: type[Exception] | None = None
    """The only error that it documents; None if it has a fallback."""


class OneValue(Bucket):
    """A bucket with the same value under every key."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    async def get(self, key: str) -> Entry | None:
        return Entry(self._value, 1)


def from_bucket(read: Callable[[Bucket], Awaitable[object]]) -> Callable[[bytes], object]:
    async def reading(value: bytes) -> object:
        return await read(OneValue(value))

    return lambda value: asyncio.run(reading(value))


def from_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def reading(value: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / name).write_bytes(value)
            return read(Path(folder))

    return reading


def a_world() -> Record:
    member = Member(WorkerId("w1-a"), CLUSTER, "", "", "127.0.0.1", 0, Rank(0), 1)
    store = StoreAddress("127.0.0.1", 1)
    assignment = Assignment(JOB, Generation(3), 1, (member,), store, Launch(script="train.py"), 5.0, "")
    return Record(Phase.RUNNING, "", Generation(3), 1, 0.0, Epoch(9), assignment)


def a_fact() -> bytes:
    status = WorkerStatus(WorkerId("w1-a"), CLUSTER, JOB, 1, WorkerPhase.PARKED, Generation(3))
    return codec.encode(codec.wrap(WorkerParked(status), sender="worker/w1-a", at=datetime(2026, 1, 1, tzinfo=UTC)))


def a_memory() -> bytes:
    return memory_records.encode_zone(learn(Memory(), StockedOut("z", "gpu", 5.0)), "z")


def lived() -> Ledger:
    return a_ledger(a_look(at(60), [a_life()]), a_look(at(120), [a_life()]))


def known() -> Known:
    place = KnownPlace("u1", JOB)
    return Known("i1", Epoch(4), 1, {}, (place,), (KnownGone(WorkerId("w0-a"), JOB, "ended"),))


PRICES = b'{"version":1,"date":"2026-01-01","source":"","prices":[{"region":"r","machine_type":"m","accelerator":"","spot":true,"micro_usd_per_hour":5}]}'  # noqa: E501

READERS = {
    "lease": Reader(
        msgspec.json.encode(LeaseRecord("a/1", 1.0, "http://a")), lambda value: read_record(Version(1, value))
    ),
    "spec": Reader(
        records.encode_spec(a_spec(JOB)), lambda value: records.decode_spec(JOB, value), records.RecordUnreadable
    ),
    "world": Reader(
        encode_record(a_world()),
        from_bucket(lambda bucket: records.read_whole_record(bucket, JOB)),
        records.RecordUnreadable,
    ),
    "ledger": Reader(
        encode_ledger(lived(), Epoch(3)),
        lambda value: decode_ledger(JOB, value),
        LedgerUnreadable,
    ),
    "claim": Reader(encode_record(a_world()), claim_of),
    "memory": Reader(a_memory(), lambda value: memory_records.decode({"memory.z": value})),
    "prices": Reader(PRICES, from_file("prices", lambda folder: cache.load(folder / "prices"))),
    "known": Reader(msgspec.json.encode(known()), from_bucket(lambda bucket: KnownRecord(bucket, CLUSTER, "i").load())),
    "kept world": Reader(
        encode_record(a_world()),
        from_bucket(lambda bucket: stored.read_world(bucket, JOB, SystemClock(), WorldCache())),
    ),
    "kept spec": Reader(records.encode_spec(a_spec(JOB)), from_bucket(lambda bucket: stored.read_launch(bucket, JOB))),
    "processes": Reader(
        msgspec.json.encode(leftovers.Left(WorkerId("w1-a"), "boot", (leftovers.ProcessId(1, 2),))),
        from_file(leftovers.RECORD, leftovers.read_left),
    ),
    "message": Reader(a_fact(), codec.decode),
    "host": Reader(host.encode_message(host.Forked(1, 0, 5)).rstrip(), host.decode_message, Unreadable),
    "host command": Reader(host.encode_command(host.Stop(1, 2.0)).rstrip(), host.decode_command, Unreadable),
    "trainer": Reader(trainer.encode_message(trainer.Status(done=4)).rstrip(), trainer.decode_message, Unreadable),
    "order": Reader(trainer.encode_order(trainer.Halt(2)).rstrip(), trainer.decode_order, Unreadable),
}

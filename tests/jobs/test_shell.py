"""A job's shell and records that another master wrote, over a real NATS server."""

import pytest

from controlplane.job import events
from controlplane.jobs.records import StoredRecord
from messages import subjects
from messages.decoding import NotStorable
from messages.ids import Epoch, Generation
from messages.records import Phase, Record, encode_record
from tests.conftest import eventual_answer
from tests.jobs.conftest import EPOCH, JOB, Bench


def a_record(why: str, epoch: int = EPOCH, generation: int = 1) -> Record:
    return Record(Phase.WAITING, why, Generation(generation), 1, 0.0, Epoch(epoch))


async def test_a_record_is_saved_and_saved_again(bench: Bench) -> None:
    shell = bench.shell()
    for why in ("first", "second"):
        assert isinstance(await bench.save(shell, a_record(why)), events.RecordSaved)
        assert (await bench.stored()).why == why


async def test_a_record_that_could_not_be_read_back_is_not_written(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("first"))
    unreadable = a_record("second", generation=2**53 + 1)
    answer = await bench.save(shell, unreadable)
    with pytest.raises(NotStorable) as refused:
        encode_record(unreadable)
    assert isinstance(answer, events.SaveFailed) and answer.why == str(refused.value)
    assert (await bench.stored()).why == "first"
    assert isinstance(await bench.save(shell, a_record("third")), events.RecordSaved)


async def test_a_write_whose_answer_was_lost_is_written_over(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("first"))
    await bench.put(encode_record(a_record("second, but nobody told")))
    assert isinstance(await bench.save(shell, a_record("third")), events.RecordSaved)
    assert (await bench.stored()).why == "third"
    assert bench.overwritten == []


async def test_the_record_of_a_newer_master_stays(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("ours"))
    await bench.put(encode_record(a_record("theirs", epoch=EPOCH + 1)))
    assert isinstance(await bench.save(shell, a_record("ours again")), events.SaveFailed)
    assert (await bench.stored()).why == "theirs"
    assert bench.overwritten == []


async def test_a_master_that_lost_the_lease_writes_nothing(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("leading"))
    bench.leads = False
    assert isinstance(await bench.save(shell, a_record("afterwards")), events.SaveFailed)
    assert (await bench.stored()).why == "leading"


async def test_a_last_word_of_the_master_before_is_adopted_not_written_over(bench: Bench) -> None:
    read = a_record("read at the start", epoch=50)
    adopted = StoredRecord(read, await bench.put(encode_record(read)))
    await bench.put(encode_record(a_record("written after it was read", epoch=50, generation=8)))
    assert isinstance(await bench.save(bench.shell(adopted), a_record("ours")), events.SaveFailed)
    assert (await bench.stored()).generation == 8
    assert bench.overwritten == [True]


@pytest.mark.parametrize("garbage", [b"{not json", b"[]", b'{"phase": "dancing"}'])
async def test_garbage_under_the_key_is_written_over(garbage: bytes, bench: Bench) -> None:
    await bench.put(garbage)
    assert isinstance(await bench.save(bench.shell(), a_record("ours")), events.RecordSaved)
    assert (await bench.stored()).why == "ours"


async def test_a_deleted_record_is_made_again(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("first"))
    await bench.context.bucket.delete(subjects.record_key(JOB))
    assert isinstance(await bench.save(shell, a_record("second")), events.RecordSaved)
    assert (await bench.stored()).why == "second"


async def test_without_the_bus_saving_fails_in_bounded_time_and_works_afterwards(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("first"))
    await bench.server.kill()
    assert isinstance(await bench.save(shell, a_record("second")), events.SaveFailed)
    await bench.server.start()
    await eventual_answer(
        lambda: bench.save(shell, a_record("third")),
        lambda reported: isinstance(reported, events.RecordSaved),
        "to be saved",
    )
    assert await bench.stored() == a_record("third")

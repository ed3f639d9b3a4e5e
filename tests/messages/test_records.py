"""The job record, and the parts of it that others than the master read."""

import pytest
from msgspec import Struct, structs

from messages.decoding import decode
from messages.ids import Epoch, Generation
from messages.jobs import JobSpec, Launch
from messages.records import Phase, Record, RecordDocument, RecordForWorkers, RecordPhase, SpecLaunch, encode_record
from tradewind.protocol import variables


@pytest.mark.parametrize(
    ("part", "whole"), [(RecordForWorkers, RecordDocument), (RecordPhase, RecordDocument), (SpecLaunch, JobSpec)]
)
def test_each_part_has_the_fields_of_the_whole(part: type[Struct], whole: type[Struct]) -> None:
    types = {field.name: field.type for field in structs.fields(whole)}
    for field in structs.fields(part):
        assert str(types[field.name]).removesuffix(" | None") in str(field.type), field.name


def test_workers_and_the_reaper_read_what_the_master_wrote() -> None:
    record = Record(Phase.RUNNING, "all ready", Generation(4), 2, 100.0, Epoch(7))
    value = encode_record(record)
    assert decode(value, RecordDocument).record == record
    assert decode(value, RecordForWorkers) == RecordForWorkers(None, Epoch(7), Generation(4), 100.0)
    assert decode(value, RecordPhase).phase is Phase.RUNNING


def test_modules_to_preload_reach_the_host_by_the_variable_that_it_reads() -> None:
    assert Launch(script="train.py", preload=("a", "b")).host_env == {variables.PRELOAD: "a,b"}

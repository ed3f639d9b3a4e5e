"""Readers of stored or received data return their fallback or raise the one error that they document."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import messages
from messages.decoding import NotStorable, Undecodable, decode, encode_readable
from messages.records import Phase
from tests.stored.hostile import WHOLE, hostile
from tests.stored.readers import READERS, Reader

ROOT = Path(messages.__file__).parent.parent
PRODUCTION = ("messages", "runtime", "controlplane", "agents")
BY_THEMSELVES = {
    "messages/decoding.py": "the one place",
    "controlplane/api/app.py": "tells a person where the mistake is; bounded on its own",
    "controlplane/catalog/shipped.py": "a file of this package",
    "controlplane/stores/server.py": "hears its parent only, through a pipe",
}


def read(reader: Reader, value: bytes) -> object:
    if reader.refuses_with is None:
        return reader.read(value)
    try:
        return reader.read(value)
    except reader.refuses_with as error:
        assert str(error)
        return None


@pytest.mark.parametrize("name", READERS)
def test_every_reader_reads_what_is_honest(name: str) -> None:
    READERS[name].read(READERS[name].honest)


@pytest.mark.parametrize("name", READERS)
def test_no_reader_is_broken_by_bytes_that_are_no_document(name: str) -> None:
    for value in WHOLE:
        read(READERS[name], value)


@pytest.mark.parametrize("name", READERS)
def test_no_reader_is_broken_by_a_document_with_a_hostile_part(name: str) -> None:
    reader = READERS[name]

    @settings(max_examples=6, suppress_health_check=list(HealthCheck))
    @given(hostile(reader.honest))
    def check(value: bytes) -> None:
        read(reader, value)

    check()


def test_nothing_is_decoded_but_in_the_one_place() -> None:
    elsewhere = re.compile(r"msgspec\.json\.(decode|Decoder)\(|json\.loads\(|msgspec\.DecodeError")
    found = {
        str(file.relative_to(ROOT))
        for folder in PRODUCTION
        for file in (ROOT / folder).rglob("*.py")
        if elsewhere.search(file.read_text())
    }
    assert found - BY_THEMSELVES.keys() == {"controlplane/clouds/gke/credentials.py"}, "google's file, read by json"


class PhaseOnly(msgspec.Struct):
    phase: Phase


class Small(msgspec.Struct):
    number: int
    share: float = 0.0
    name: str = ""


@settings(max_examples=30)
@given(st.integers(), st.floats(), st.text(st.characters(), max_size=5))
def test_a_value_is_encoded_only_if_it_can_be_read_back(number: int, share: float, name: str) -> None:
    value = Small(number, share, name)
    try:
        content = encode_readable(value, Small)
    except NotStorable:
        return
    assert decode(content, Small) == value


@pytest.mark.parametrize("value", [Small(1, float("nan")), Small(10**5000), Small(1, 0.0, "\ud800")])
def test_a_value_that_cannot_be_read_back_is_refused(value: Small) -> None:
    with pytest.raises(NotStorable):
        encode_readable(value, Small)


def test_the_reason_is_short_however_long_the_value_is() -> None:
    with pytest.raises(Undecodable) as raised:
        decode(b'{"phase": "' + b"x" * 100_000 + b'"}', PhaseOnly)
    assert len(str(raised.value)) <= 300

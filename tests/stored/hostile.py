"""Hostile bytes: altered valid documents, and random ones."""

import json
from typing import Any

from hypothesis import strategies as st

DEEP = 100_000
"""Levels of nesting, far above every recursion limit."""

INVALID_TEXT = b'"\xff\xfe"'
DEEP_LIST = b"[" * DEEP + b"]" * DEEP
DEEP_OBJECT = b'{"a":' * DEEP + b"1" + b"}" * DEEP
FRAGMENTS = (
    INVALID_TEXT,
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b'"\\u0000"',
    DEEP_LIST,
    b"9" * 5_000,
    b"-" + b"9" * 400,
    b"1e999",
    b"9007199254740993",
    b"-1",
    b"0.5",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b'"\xe2\x80\xa8"',
    b"[[1, 2], [3]]",
)
WHOLE = (b"", b" ", b"\xff", b"\x00", b"\xef\xbb\xbf{}", b"{", b'{"', DEEP_LIST, DEEP_OBJECT, *FRAGMENTS)

_MARK = "\u2603 here"


@st.composite
def hostile(draw: st.DrawFn, honest: bytes) -> bytes:
    """A valid document with one value replaced, one byte changed, or the end cut off; or no document at all."""
    match draw(st.sampled_from(("value", "unknown", "cut", "byte", "bytes"))):
        case "value":
            return _replaced(draw, honest)
        case "unknown":
            return b'{"nobody":' + draw(st.sampled_from(FRAGMENTS)) + b"," + honest.lstrip(b"{ ")
        case "cut":
            return honest[: draw(st.integers(0, max(0, len(honest) - 1)))]
        case "byte":
            at = draw(st.integers(0, max(0, len(honest) - 1)))
            return honest[:at] + draw(st.binary(min_size=1, max_size=1)) + honest[at + 1 :]
        case _:
            return draw(st.binary(max_size=64))


def _replaced(draw: st.DrawFn, honest: bytes) -> bytes:
    document = json.loads(honest)
    places = list(_places(document))
    if not places:
        return draw(st.sampled_from(FRAGMENTS))
    holder, key = draw(st.sampled_from(places))
    holder[key] = _MARK
    return (
        json.dumps(document, ensure_ascii=False)
        .encode()
        .replace(json.dumps(_MARK, ensure_ascii=False).encode(), draw(st.sampled_from(FRAGMENTS)))
    )


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a document that holds a value."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    return [place for key in keys for place in [(value, key), *_places(value[key])]]

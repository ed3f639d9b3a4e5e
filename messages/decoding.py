"""The one way from stored or received bytes to a typed value, and the one way to bytes that will be stored.

Others can write to the bus, to the disk and to sockets, so their bytes may be anything. msgspec reports that in several
ways: its own errors, invalid UTF-8 inside a string, a recursion limit for deep nesting. Here all of them are one error.
"""

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

REASON_AT_MOST = 300
"""Characters of a reason: msgspec quotes the value that it refuses."""

_REFUSALS = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


class Undecodable(ValueError):
    """Bytes that are not what they should be, with the reason."""


class Unreadable(ValueError):
    """A value that its own reader would refuse, so it must not be stored."""


class Decoder(Generic[T]):
    """Decodes many values of one type."""

    def __init__(self, wanted: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(wanted)

    def decode(self, content: bytes | str | msgspec.Raw) -> T:
        """Raises `Undecodable`, and nothing else."""
        try:
            return self._decoder.decode(content)
        except _REFUSALS as error:
            raise Undecodable(_reason(error)) from error


def decode(content: bytes | str | msgspec.Raw, wanted: type[T]) -> T:
    """Raises `Undecodable`, and nothing else."""
    try:
        return msgspec.json.decode(content, type=wanted)
    except _REFUSALS as error:
        raise Undecodable(_reason(error)) from error


def encode_readable(value: object, wanted: type[Any], *, sort_keys: bool = False) -> bytes:
    """The bytes of a value that `wanted` can be decoded from. Raises `Unreadable`.

    A record that cannot be read back is lost, and the one before it is lost with it.
    """
    try:
        content = msgspec.json.encode(value, order="deterministic" if sort_keys else None)
        decode(content, wanted)
    except _REFUSALS as error:
        raise Unreadable(f"it could not be read back: {_reason(error)}") from error
    return content


def _reason(error: Exception) -> str:
    return str(error)[:REASON_AT_MOST]

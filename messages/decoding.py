"""Decoding of stored or received bytes to typed values, and encoding of values that will be stored.

Others can write to the bus, the disk and sockets, so bytes may be invalid. msgspec reports that by several errors: its
own, invalid UTF-8 in a string, a recursion limit for deep nesting. This module turns all of them into one.
"""

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

REASON_AT_MOST = 300
"""Characters of a reason. Bounded, because msgspec quotes the refused value."""

_REFUSALS = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


class Undecodable(ValueError):
    """Raised for bytes that do not have the wanted type; the message is the reason."""


class NotStorable(ValueError):
    """Raised for a value that its own reader would refuse, so that it is not stored."""


class Decoder(Generic[T]):
    """Decodes many values of one type."""

    def __init__(self, wanted: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(wanted)

    def decode(self, content: bytes | str | msgspec.Raw) -> T:
        """Decodes a value. Raises only `Undecodable`."""
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
    """Encodes a value after a check that `wanted` can be decoded from it. Raises `NotStorable`.

    A record that cannot be read back is lost, together with the record that it replaced.
    """
    try:
        content = msgspec.json.encode(value, order="deterministic" if sort_keys else None)
        decode(content, wanted)
    except _REFUSALS as error:
        raise NotStorable(f"it could not be read back: {_reason(error)}") from error
    return content


def _reason(error: Exception) -> str:
    return str(error)[:REASON_AT_MOST]

"""Encoding and decoding of messages. Decoding never raises: it returns `Rejected` with the reason."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from messages.decoding import Decoder, Undecodable
from messages.envelope import KINDS, VERSION, Envelope, Message
from messages.ids import Epoch, Generation
from messages.workers import WorkerStatus

MAX_BYTES = 900_000
"""Maximum size of a message, below the 1 MiB that a NATS server accepts by default."""


class RejectedReason(StrEnum):
    OVERSIZED = "oversized"
    MALFORMED = "malformed"
    NEWER_VERSION = "newer_version"
    UNKNOWN_KIND = "unknown_kind"


@dataclass(frozen=True, slots=True)
class Received:
    message: Message
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Rejected:
    reason: RejectedReason
    detail: str


class MessageTooLarge(ValueError):
    """A message that no receiver would accept."""


class _Version(msgspec.Struct):
    v: int


_KIND_OF: dict[type, str] = {struct: kind for kind, struct in KINDS.items()}
_encoder = msgspec.json.Encoder()
_version_decoder: Decoder[_Version] = Decoder(_Version)
_envelope_decoder: Decoder[Envelope] = Decoder(Envelope)
_body_decoders: dict[str, Decoder[Message]] = {kind: Decoder(struct) for kind, struct in KINDS.items()}


def kind_of(message: Message) -> str:
    return _KIND_OF[type(message)]


def wrap(
    message: Message,
    *,
    sender: str,
    epoch: Epoch | None = None,
    generation: Generation | None = None,
    caused_by: str | None = None,
    cause: str | None = None,
    at: datetime | None = None,
    message_id: str | None = None,
) -> Envelope:
    return Envelope(
        v=VERSION,
        kind=kind_of(message),
        at=at or datetime.now(UTC),
        sender=sender,
        id=message_id or uuid.uuid4().hex[:20],
        body=msgspec.Raw(_encoder.encode(message)),
        epoch=epoch,
        generation=generation if generation is not None else _generation_of(message),
        caused_by=caused_by,
        cause=cause,
    )


def encode(envelope: Envelope) -> bytes:
    payload = _encoder.encode(envelope)
    if len(payload) > MAX_BYTES:
        raise MessageTooLarge(f"a {envelope.kind} message of {len(payload)} bytes exceeds the limit of {MAX_BYTES}")
    return payload


def decode(payload: bytes) -> Received | Rejected:
    if len(payload) > MAX_BYTES:
        return Rejected(RejectedReason.OVERSIZED, f"{len(payload)} bytes, the limit is {MAX_BYTES}")
    try:
        envelope = _envelope_decoder.decode(payload)
    except Undecodable as error:
        return _newer_version(payload) or Rejected(RejectedReason.MALFORMED, str(error))
    if envelope.v > VERSION:
        return _newer(envelope.v)
    decoder = _body_decoders.get(envelope.kind)
    if decoder is None:
        return Rejected(RejectedReason.UNKNOWN_KIND, envelope.kind[:100])
    try:
        return Received(decoder.decode(envelope.body), envelope)
    except Undecodable as error:
        return Rejected(RejectedReason.MALFORMED, f"{envelope.kind}: {error}")


def _generation_of(message: Message) -> Generation | None:
    own: Generation | None = getattr(message, "generation", None)
    if own is not None:
        return own
    status: WorkerStatus | None = getattr(message, "status", None)
    return status.generation if status is not None else None


def _newer_version(payload: bytes) -> Rejected | None:
    """Reads only the version: a newer version may have a different envelope, but its number is in the same place."""
    try:
        version = _version_decoder.decode(payload).v
    except Undecodable:
        return None
    return _newer(version) if version > VERSION else None


def _newer(version: int) -> Rejected:
    return Rejected(RejectedReason.NEWER_VERSION, f"version {version}, this process supports {VERSION}")

"""The headers of NATS's key-value buckets: what a write requires, and how a key ended."""

from collections.abc import Mapping

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
"""The revision that a key must have for a write to succeed; 0 for none."""
TTL = "Nats-TTL"
"""Seconds after which the server removes the value."""
OPERATION = "KV-Operation"
"""Set if the key was deleted."""
_MARKER = "Nats-Marker-Reason"
"""Set by the server if the value expired."""


def is_gone(headers: Mapping[str, str]) -> bool:
    """Check whether the message with these headers ended its key, by a deletion or an expiry."""
    return OPERATION in headers or _MARKER in headers

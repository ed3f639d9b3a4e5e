"""Times as Google writes them."""

from datetime import UTC, datetime


def rfc3339(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")

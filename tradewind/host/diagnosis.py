"""Diagnosis of a failed trainer from its output and error file."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_ERROR_FILE_LIMIT_BYTES: Final = 1024 * 1024
_MESSAGE_LIMIT: Final = 4 * 1024

# Only lines that name an exception count: warnings and C++ stack dumps contain the same words in healthy runs.
_NAMES_AN_EXCEPTION: Final = re.compile(r"(\[rank\d+\]:)?\s*(what\(\):|\[E\d{4} |[\w.]+(Error|Exception)\b.*:)")

_PEER_LOST: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"gloo.*(Connection closed by peer|Connection reset by peer|Broken pipe|Connection refused)",
        r"gloo.*(Connection timed out|No route to host|Network is unreachable)",
        r"Gloo connectFullMesh failed",
        r"(DistNetworkError|DistStoreError): (?!The server socket)",
        r"Connection was likely closed\. Did the remote server shutdown or crash",
        r"remote process exited or there was a network error",
        r"ncclRemoteError",
        r"NCCL.*(Connection closed by remote peer|Connection reset by peer|Broken pipe)",
    )
)

_ENDS_A_TRACEBACK: Final = re.compile(r"(\[rank\d+\]: ?)?[\w.]+(Error|Exception|Interrupt|Exit)(:|$)")
_NO_MODULE: Final = (
    re.compile(r"(?:\[rank\d+\]: ?)?ModuleNotFoundError: No module named '([\w.]+)'$"),
    # The interpreter's own message for `python -m`.
    re.compile(r"\S+: No module named ([\w.]+)$"),
    re.compile(r"\S+: Error while finding module .*\(ModuleNotFoundError: No module named '([\w.]+)'\)$"),
)
CHOOSE_ANOTHER: Final = (
    "Choose an interpreter that has it: `tradewind run --python PATH`, or `launch.python` in the job file."
)


def peer_lost(lines: Iterable[str]) -> bool:
    """True if the trainer failed because its connection to a peer or to the store broke."""
    return any(pattern.search(line) for line in lines if _NAMES_AN_EXCEPTION.match(line) for pattern in _PEER_LOST)


def hint_of(lines: Sequence[str]) -> str | None:
    """Returns advice about the failure, if its cause is known."""
    written = [line for line in lines if line.strip()]
    suspects = [line for line in written if _ENDS_A_TRACEBACK.match(line)][-1:] or written[-1:]
    found = [match[1] for line in suspects for pattern in _NO_MODULE if (match := pattern.match(line))]
    return missing_module(found[0]) if found else None


def missing_module(name: str) -> str:
    return f"{sys.executable} has no module {name!r}. {CHOOSE_ANOTHER}"


def error_message(error_file: str | None) -> str | None:
    """Returns the message in TORCHELASTIC_ERROR_FILE, if the script wrote one (`elastic…errors.record` does)."""
    if not error_file:
        return None
    try:
        with Path(error_file).open("rb") as file:
            content = json.loads(file.read(_ERROR_FILE_LIMIT_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    message = content.get("message") if isinstance(content, dict) else None
    if isinstance(message, dict):
        message = message.get("message")
    return message[:_MESSAGE_LIMIT] if isinstance(message, str) else None

"""Logs on standard error: a constant event name plus fields, as key=value for people or as JSON for machines.

Messages of libraries through the standard `logging` are written in the same format.
"""

import logging
import os
import sys
from collections.abc import Hashable, Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

FORMAT_VARIABLE = "TRADEWIND_LOG"
LEVEL_VARIABLE = "TRADEWIND_LOG_LEVEL"
_LEVELS = ("debug", "info", "warning", "error")
_CHATTY = ("nats", "aiohttp.access", "asyncio")
"""Loggers of libraries that write at debug level only, below warnings."""


def configure(
    role: str,
    *,
    environ: Mapping[str, str] = os.environ,
    stream: TextIO | None = None,
    **bound: object,
) -> None:
    """Configures logging, once at the start of a process. Each line contains the fields `bound`."""
    target = sys.stderr if stream is None else stream
    level = _level(environ.get(LEVEL_VARIABLE, "info"))
    shared: list[Processor] = [
        _adding({"role": role, **bound}),
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    as_json = environ.get(FORMAT_VARIABLE) == "json"
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer() if as_json else _for_people,
            ],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.DEBUG if level == logging.DEBUG else logging.WARNING)


def logger(**bound: object) -> FilteringBoundLogger:
    made: FilteringBoundLogger = structlog.get_logger("tradewind", **bound)
    return made


class Once:
    """Returns True for a new key. Bounded: after `limit` keys it returns False for all."""

    def __init__(self, limit: int = 1000) -> None:
        self._seen: set[Hashable] = set()
        self._limit = limit

    def __call__(self, key: Hashable) -> bool:
        if key in self._seen or len(self._seen) >= self._limit:
            return False
        self._seen.add(key)
        return True


class WhyLog:
    """Logs the reason of a decision when it changes."""

    def __init__(self, log: FilteringBoundLogger, event: str) -> None:
        self._log = log
        self._event = event
        self._last: str | None = None

    def __call__(self, why: str, **fields: object) -> None:
        if why and why != self._last:
            self._last = why
            self._log.info(self._event, why=why, **fields)


def _adding(fields: dict[str, object]) -> Processor:
    def add(_logger: object, _method: str, event: EventDict) -> EventDict:
        return {**fields, **event}

    return add


def _level(name: str) -> int:
    known = name.lower() if name.lower() in _LEVELS else "info"
    return int(getattr(logging, known.upper()))


def _for_people(_logger: object, _method: str, event: EventDict) -> str:
    fields = dict(event)
    at = str(fields.pop("timestamp", ""))
    level = str(fields.pop("level", "info"))
    name = str(fields.pop("event", ""))
    trace = fields.pop("exception", None)
    clock = at[11:23] if len(at) >= 23 else at
    line = " ".join([clock, f"{level:<7}", name, *(f"{key}={_shown(value)}" for key, value in fields.items())])
    return f"{line}\n{trace}" if trace else line


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    plain = text.isprintable() and not any(c.isspace() or c in "\"'=" for c in text)
    return text if text and plain else repr(text)

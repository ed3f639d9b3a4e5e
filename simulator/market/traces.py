"""Traces: recorded or invented markets, read from a file.

Tradewind's format is a table, as CSV with a header or as a JSON list of objects: `time_s`, `zone`, `accelerator`,
`capacity`, and optionally `price` (USD for an hour of one accelerator) and `notice_s`. An empty field means
"unchanged". Two other formats are read too: a JSON list of `{"Time", "GPUs"}` for one market, which must be named
separately, and a CSV with a column `Timestamp` and a column `<accelerator>_<zone>` for each market.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from runtime.errors import UserError
from runtime.problems import decode_checked
from simulator.market.markets import ACCELERATORS, Amount, Change, Market, NoticeSeconds, Usd, accelerator, micro_usd

ROWS_AT_MOST = 1_000_000


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    time_s: Annotated[float, Meta(ge=0)]
    zone: Annotated[str, Meta(min_length=1)]
    accelerator: str
    capacity: Amount | None = None
    price: Usd | None = None
    notice_s: NoticeSeconds | None = None


class Sample(Struct, frozen=True):
    time_s: Annotated[float, Meta(ge=0)] = msgspec.field(name="Time")
    gpus: Amount = msgspec.field(name="GPUs")


def read_trace(path: Path, market: Market | None = None) -> tuple[Change, ...]:
    """The changes in order of time. `market` is for the format that does not name its market."""
    what = f"The trace {path}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read the trace {path}: {error}", "give the path of a CSV or JSON file") from None
    changes = tuple(_json(text, what, market) if text.lstrip()[:1] in ("[", "{") else _csv(text, what))
    if not changes:
        raise UserError(f"{what} is empty.", "give it at least one row; docs/simulator.md describes the format")
    return tuple(sorted(changes, key=lambda change: change.at_s))


def known_accelerator(name: str, where: str) -> str:
    found = accelerator(name)
    if found is None:
        raise UserError(f"{where} names an unknown accelerator {name!r}.", f"one of {', '.join(ACCELERATORS)}")
    return found.name


def _json(text: str, what: str, market: Market | None) -> Iterator[Change]:
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UserError(f"{what} is not JSON: {error}", "correct it; docs/simulator.md describes the format") from None
    if isinstance(data, list) and data and isinstance(data[0], dict) and "GPUs" in data[0]:
        if market is None:
            raise UserError(f"{what} names no zone and accelerator.", "--trace us-central1-a/nvidia-l4=FILE")
        return _samples(decode_checked(list[Sample], data, what=what), market)
    return _rows(decode_checked(list[Row], data, what=what), what)


def _csv(text: str, what: str) -> Iterator[Change]:
    rows = list(csv.DictReader(text.splitlines()))[:ROWS_AT_MOST]
    if rows and "Timestamp" in rows[0]:
        return _counts(rows, what)
    given = [{key: value for key, value in row.items() if value not in ("", None)} for row in rows]
    return _rows(decode_checked(list[Row], given, what=what, strict=False), what)


def _rows(rows: list[Row], what: str) -> Iterator[Change]:
    for row in rows:
        yield Change(
            row.time_s,
            Market(row.zone, known_accelerator(row.accelerator, what)),
            row.capacity,
            None if row.price is None else micro_usd(row.price),
            row.notice_s,
        )


def _samples(samples: list[Sample], market: Market) -> Iterator[Change]:
    known: int | None = None
    for sample in sorted(samples, key=lambda each: each.time_s):
        if sample.gpus != known:
            known = sample.gpus
            yield Change(sample.time_s, market, sample.gpus)


def _counts(rows: list[dict[str, str]], what: str) -> Iterator[Change]:
    columns = {name: _column(name, what) for name in rows[0] if name not in ("", "Timestamp")}
    try:
        start_s = float(rows[0]["Timestamp"])
        for row in rows:
            for name, market in columns.items():
                yield Change(float(row["Timestamp"]) - start_s, market, int(row[name]))
    except (ValueError, TypeError) as error:
        raise UserError(f"{what} has a field that is not a number: {error}", "correct it") from None


def _column(name: str, what: str) -> Market:
    kind, _, zone = name.partition("_")
    return Market(zone, known_accelerator(kind, what))

"""Fetched prices on disk, for use after a restart. The file is written atomically."""

import os
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from controlplane.catalog.money import MicroDollars
from controlplane.catalog.price_list import Price, PriceList
from messages.decoding import Undecodable, decode

VERSION = 1
MAX_BYTES = 8 * 1024 * 1024
FOLDER_MODE = 0o700


class PriceRecord(Struct, frozen=True):
    region: str
    machine_type: str
    accelerator: str
    spot: bool
    micro_usd_per_hour: Annotated[int, Meta(gt=0, le=10**12)]


class CacheFile(Struct, frozen=True, kw_only=True):
    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}\Z")]
    source: str
    prices: tuple[PriceRecord, ...]


def default_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "tradewind" / "gcp-prices.json"


def load(path: Path) -> PriceList | str | None:
    """The stored prices; None without a file; an error message if the file cannot be used."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return f"{path} is larger than {MAX_BYTES} bytes."
        read = decode(path.read_bytes(), CacheFile)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
    except Undecodable as error:
        return f"{path} is not a list of prices: {error}."
    prices = (
        Price(each.region, each.machine_type, each.accelerator, each.spot, MicroDollars(each.micro_usd_per_hour))
        for each in read.prices
    )
    return PriceList(read.date, read.source, tuple(prices))


def save(path: Path, fetched: PriceList) -> str | None:
    """Store the prices; returns an error message if that fails, since the prices are usable anyway."""
    record = CacheFile(
        version=VERSION,
        date=fetched.date,
        source=fetched.source,
        prices=tuple(msgspec.convert(fetched.prices, tuple[PriceRecord, ...], from_attributes=True)),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        _replace(path, msgspec.json.encode(record))
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}."
    return None


def _replace(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise

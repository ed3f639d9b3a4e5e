"""Names and choices that look random and are determined by the seed."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from simulator.cloud.model.names import InstanceId
from simulator.cloud.model.state import Cloud

T = TypeVar("T")
_LETTERS = "0123456789bcdfghjklmnpqrstvwxz"


def count(cloud: Cloud) -> tuple[Cloud, int]:
    """The cloud with its counter increased, and the new number."""
    return replace(cloud, choices=cloud.choices + 1), cloud.choices + 1


def hexadecimal(cloud: Cloud, what: str, number: int, length: int = 8) -> str:
    return _digest(cloud, what, number).hex()[:length]


def suffix(cloud: Cloud, number: int) -> str:
    """The four letters at the end of a node's name."""
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in _digest(cloud, "suffix", number)[:4])


def instance_id(cloud: Cloud, number: int) -> InstanceId:
    return InstanceId(str(int.from_bytes(_digest(cloud, "instance", number)[:8]) | 1 << 62))


def shuffled(cloud: Cloud, what: str, number: int, items: Sequence[T]) -> list[T]:
    mixed = list(items)
    random.Random(f"{cloud.rules.seed}/{what}/{number}").shuffle(mixed)
    return mixed


def _digest(cloud: Cloud, what: str, number: int) -> bytes:
    return hashlib.sha256(f"{cloud.rules.seed}/{what}/{number}".encode()).digest()

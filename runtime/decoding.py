"""Plain data to typed structs, with every problem reported at once and where it is."""

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


def problems(wanted: Any, data: object, path: str = "", *, strict: bool = True) -> list[Problem]:
    try:
        msgspec.convert(data, wanted, strict=strict)
    except msgspec.ValidationError as error:
        return [Problem(path, str(error))]
    return []

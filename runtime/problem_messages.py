"""Texts of the problems that `runtime.problems` finds: what was expected, what came, what is allowed."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import inspect

_NUMBERS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_LENGTHS = {"min_length": "at least", "max_length": "at most"}
LIMITS = (*_NUMBERS, *_LENGTHS, "multiple_of", "pattern")


def expected(wanted: str, data: object, shown: bool = False) -> str:
    if data is None:
        return f"is empty, expected {wanted}"
    value = f" {shown_value(data)}" if shown and isinstance(data, str | int | float | bool) else ""
    kind = "keys and values" if isinstance(data, Mapping) else type(data).__name__
    return f"expected {wanted}, got {kind}{value}"


def missing(description: str = "") -> str:
    return with_note("is missing", description)


def not_allowed(data: object, limits: Mapping[str, Any], description: str = "") -> str:
    return f"is {shown_value(data)}, but must {allowed(limits, description)}"


def struct_of(names: Sequence[str]) -> str:
    return f"keys and values ({', '.join(names)})"


def name_of(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata():
            return name_of(info.type)
        case inspect.NoneType():
            return "nothing"
        case inspect.StructType() | inspect.DictType():
            return "keys and values"
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return "a list"
        case _:
            return type(info).__name__.removesuffix("Type").lower()


def quotes_advised(info: inspect.Type, data: object) -> str:
    plain = not isinstance(data, list | tuple | Mapping) and data is not None
    return "; put it in quotes" if isinstance(info, inspect.StrType) and plain else ""


def unknown_key(key: object, names: list[str], meant: str) -> str:
    if not isinstance(key, str):
        return f"the key {key!r} is not text; put it in quotes (YAML takes yes, no, on and off for truth values)"
    return f"unknown key; did you mean '{meant}'?" if meant else f"unknown key; known are {', '.join(names)}"


def allowed(limits: Mapping[str, Any], description: str) -> str:
    if "pattern" in limits:
        return f"be {description}" if description else f"match {limits['pattern']}"
    numbers = [f"{word} {limits[name]}" for name, word in _NUMBERS.items() if name in limits]
    lengths = [f"{word} {limits[name]} long" for name, word in _LENGTHS.items() if name in limits]
    multiples = [f"a multiple of {limits['multiple_of']}"] if "multiple_of" in limits else []
    return with_note(f"be {' and '.join([*numbers, *lengths, *multiples])}", description)


def one_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def shown_value(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."


def with_note(text: str, description: str) -> str:
    return f"{text} ({description})" if description else text

"""Messages as JSON lines: one object on each line, whose `type` names the message.

A message is a frozen dataclass; the types of its fields are the contract. A reader refuses values that do not fit them,
ignores unknown fields, and uses the default of an absent field.
"""

import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

QUOTED_AT_MOST: Final = 80
"""Maximum number of characters that an error quotes of a refused value."""


@dataclass(frozen=True, slots=True)
class Within:
    """Inclusive bounds of a number."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class AtMost:
    """The largest number of items."""

    items: int


Count = Annotated[int, Within(0, 2**53)]
"""A count, step or generation. JSON readers in other languages keep whole numbers up to here."""
RankNumber = Annotated[int, Within(0, 1_000_000)]
Seconds = Annotated[float, Within(0, 1e9)]
UnixSeconds = Annotated[float, Within(0, 1e11)]

Message = TypeVar("Message")
_Read = Callable[[Any, str], Any]
"""Reads a decoded JSON value; the text names the value in errors. Raises `Unreadable`."""


class Unreadable(ValueError):
    """A line is no message of its protocol; the text has the reason."""


class Lines(Generic[Message]):
    """Encodes and decodes the messages of one direction of a protocol."""

    def __init__(self, kinds: Mapping[str, type[Message]]) -> None:
        self._readers = {name: _dataclass_reader(kind) for name, kind in kinds.items()}
        self._names = {kind: name for name, kind in kinds.items()}

    def encode(self, message: Message) -> bytes:
        content = {"type": self._names[type(message)], **_contents(message)}
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=_contents)
        return text.encode(errors="replace") + b"\n"

    def decode(self, line: bytes) -> Message:
        """Raises `Unreadable`, and nothing else."""
        try:
            content = _DECODER.decode(line.decode())
        except Unreadable:
            raise
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"not JSON: {error}") from error
        if not isinstance(content, dict):
            raise Unreadable(f"a message is a JSON object, not {_quoted(content)}")
        name = content.get("type")
        read = self._readers.get(name) if isinstance(name, str) else None
        if read is None:
            raise Unreadable(f"unknown type {_quoted(name)}: expected one of {', '.join(self._readers)}")
        return cast(Message, read(content, str(name)))


def reader(kind: type[Message]) -> Callable[[object], Message]:
    """Returns a function that converts a decoded JSON value to a dataclass, or raises `Unreadable`."""
    read = _dataclass_reader(kind)
    return lambda value: cast(Message, read(value, kind.__name__))


def _contents(message: Any) -> dict[str, object]:
    return {each.name: getattr(message, each.name) for each in fields(message)}


def _dataclass_reader(kind: Any) -> _Read:
    hints = get_type_hints(kind, include_extras=True)
    parts = [(each.name, _reader(hints[each.name]), _is_required(each)) for each in fields(kind)]

    def read(value: Any, where: str) -> object:
        if not isinstance(value, dict):
            raise Unreadable(f"'{where}' must be a JSON object, not {_quoted(value)}")
        found = {}
        for name, read_part, is_required in parts:
            if name in value:
                found[name] = read_part(value[name], name)
            elif is_required:
                raise Unreadable(f"'{where}' has no '{name}'")
        return kind(**found)

    return read


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _reader(hint: Any) -> _Read:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Annotated:
        return _bounded(_reader(arguments[0]), arguments[1:])
    if origin in (Union, types.UnionType):
        [wanted] = (argument for argument in arguments if argument is not type(None))
        return _optional(_reader(wanted))
    if origin is Literal:
        return _choice(arguments)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin is Mapping:
        return _mapping(_reader(arguments[1]))
    if is_dataclass(hint):
        return _dataclass_reader(hint)
    raise TypeError(f"{hint} has no reader")


def _tuple_reader(arguments: tuple[Any, ...]) -> _Read:
    items, is_open = (arguments[:-1], True) if arguments[-1] is Ellipsis else (arguments, False)
    first = items[0]
    if all(item == first for item in items) and _is_integer(first):
        limit = next((each for each in get_args(first) if isinstance(each, Within)), Within(-math.inf, math.inf))
        return _integers(limit, None if is_open else len(items))
    return _sequence(_reader(first)) if is_open else _row([*map(_reader, items)])


def _is_integer(hint: Any) -> bool:
    return hint is int or (get_origin(hint) is Annotated and get_args(hint)[0] is int)


def _read_int(value: Any, where: str) -> int:
    if type(value) is not int:
        raise Unreadable(f"'{where}' must be an integer, not {_quoted(value)}")
    return value


def _read_float(value: Any, where: str) -> float:
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise Unreadable(f"'{where}' must be a finite number, not {_quoted(value)}")
    return number


def _read_bool(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise Unreadable(f"'{where}' must be true or false, not {_quoted(value)}")
    return value


def _read_text(value: Any, where: str) -> str:
    if type(value) is not str or not (value.isascii() or _has_utf8(value)):
        raise Unreadable(f"'{where}' must be a string, not {_quoted(value)}")
    return value


def _has_utf8(text: str) -> bool:
    """False if the text contains half of a surrogate pair: JSON allows it, UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_anything(value: Any, _where: str) -> object:
    return cast(object, value)


_PLAIN: Final[Mapping[Any, _Read]] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_text,
    object: _read_anything,
}


def _bounded(read: _Read, limits: tuple[object, ...]) -> _Read:
    [limit] = limits
    match limit:
        case Within(least, most):

            def read_number(value: Any, where: str) -> object:
                number = read(value, where)
                if not least <= number <= most:
                    raise Unreadable(f"'{where}' must be from {least:g} to {most:g}, not {_quoted(value)}")
                return cast(object, number)

            return read_number
        case AtMost(items):

            def read_items(value: Any, where: str) -> object:
                found = read(value, where)
                if len(found) > items:
                    raise Unreadable(f"'{where}' has {len(found)} items, but at most {items} are allowed")
                return cast(object, found)

            return read_items
        case _:
            raise TypeError(f"{limit} is no limit")


def _optional(read: _Read) -> _Read:
    return lambda value, where: None if value is None else read(value, where)


def _choice(choices: tuple[object, ...]) -> _Read:
    def read(value: Any, where: str) -> object:
        if not isinstance(value, str) or value not in choices:
            raise Unreadable(f"'{where}' must be one of {', '.join(map(str, choices))}, not {_quoted(value)}")
        return value

    return read


def _sequence(read_item: _Read) -> _Read:
    def read(value: Any, where: str) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise Unreadable(f"'{where}' must be a list, not {_quoted(value)}")
        return tuple([read_item(item, where) for item in value])

    return read


def _integers(limit: Within, count: int | None) -> _Read:
    """Returns a fast reader of a list of integers: large worlds have thousands of them."""
    least, most = limit.least, limit.most

    def read(value: Any, where: str) -> tuple[int, ...]:
        if not isinstance(value, list) or (count is not None and len(value) != count):
            of = "integers" if count is None else f"{count} integers"
            raise Unreadable(f"'{where}' must be a list of {of}, not {_quoted(value)}")
        for item in value:
            if type(item) is not int or not least <= item <= most:
                raise Unreadable(f"'{where}' must contain integers from {least:g} to {most:g}, not {_quoted(item)}")
        return tuple(value)

    return read


def _row(readers: list[_Read]) -> _Read:
    def read(value: Any, where: str) -> tuple[object, ...]:
        if not isinstance(value, list) or len(value) != len(readers):
            raise Unreadable(f"'{where}' must be a list of {len(readers)} items, not {_quoted(value)}")
        return tuple([read_item(item, where) for read_item, item in zip(readers, value, strict=True)])

    return read


def _mapping(read_item: _Read) -> _Read:
    def read(value: Any, where: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise Unreadable(f"'{where}' must be a JSON object, not {_quoted(value)}")
        return {_read_text(name, where): read_item(item, where) for name, item in value.items()}

    return read


def _refuse_constant(text: str) -> object:
    raise Unreadable(f"not JSON: {text} is not a number")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _quoted(value: object) -> str:
    return f"{value!r:.{QUOTED_AT_MOST}}"

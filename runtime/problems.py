"""Conversion of plain data to typed structs that reports all problems at once, with their places.

msgspec stops at the first problem, but a person who wrote a file wants all of them. So this module walks the data and
the type side by side. If the walk finds nothing and msgspec refuses the data, its message is the problem.
"""

import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, inspect

from runtime import problem_messages as words
from runtime.errors import UserError
from runtime.salvage import salvage

T = TypeVar("T")
Checks = Callable[[T], Sequence[tuple[str, str]]]
"""Checks of several fields together. Returns pairs of path and text."""

MOST = 100
"""Maximum number of problems that are reported."""

_LONGEST_KEY = 100
"""Characters of a key that are shown and compared with known keys."""
_SIMPLE_KEY = re.compile(r"^[A-Za-z0-9_-]+$")
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_MSGSPEC_PATH = re.compile(r"^(?P<text>.*) - at `(?:key in )?\$\.?(?P<path>.*)`$", re.DOTALL)
_BASES: dict[type, Any] = {
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BoolType: bool,
    inspect.BytesType: bytes,
    inspect.NoneType: None,
}
_UNLIMITED: dict[type, inspect.Type] = {leaf: leaf() for leaf in _BASES}
"""Types without limits. Their values need no conversion, which makes long lists fast."""


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    text: str
    meant: str = ""
    """The path that was probably meant."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


_MORE = Problem("", f"… and more: these are the first {MOST}")


def decode_checked(
    wanted: type[T],
    data: object,
    *,
    what: str = "This",
    strict: bool = True,
    checks: Checks[T] | None = None,
    thorough: bool = False,
) -> T:
    """Returns the typed value, or raises `UserError` with all problems.

    `strict`: text is never a number. Not strict is for sources that have only text, such as the environment.
    `thorough`: runs `checks` on the valid fields even if other fields are wrong; see `all_problems`.
    """
    if checks is not None and thorough:
        found = all_problems(wanted, data, checks)
    else:
        found = problems(wanted, data, strict=strict)
        if checks is not None and not found:
            found = _bounded(Problem(*each) for each in checks(msgspec.convert(data, wanted, strict=strict)))
    if not found:
        return msgspec.convert(data, wanted, strict=strict)
    raise UserError(f"{what} has {_count(found)}:", problems=tuple(map(str, found)))


def problems(wanted: Any, data: object, path: str = "", *, strict: bool = True) -> list[Problem]:
    """Returns all problems of the data, or the first `MOST` and a note that there are more."""
    found = _bounded(_Walk(strict).value(inspect.type_info(wanted), data, path, ""))
    return found or _by_msgspec(wanted, data, path, strict)


def all_problems(wanted: type[T], data: object, checks: Checks[T]) -> list[Problem]:
    """Returns the problems of fields, and those of `checks` whose fields are all valid.

    The text of each check's problem must name the paths of all other fields that it concerns.
    """
    found = problems(wanted, data)
    if not found:
        return _bounded(Problem(*each) for each in checks(msgspec.convert(data, wanted)))
    if _MORE in found:
        return found
    walk = _Walk(strict=True)
    value = salvage(inspect.type_info(wanted), data, lambda info, part: not any(walk.value(info, part, "", "")))
    wrong = [path for each in found for path in (each.path, each.meant or each.path)]
    more = (Problem(path, text) for path, text in checks(value)[:MOST])
    about_others = (each for each in more if not any(_is_about(each, path) for path in wrong))
    return _bounded(itertools.chain(found, about_others))


def _count(found: list[Problem]) -> str:
    if _MORE in found:
        return f"more than {MOST} problems"
    return "a problem" if len(found) == 1 else f"{len(found)} problems"


def _bounded(found: Iterable[Problem]) -> list[Problem]:
    """Returns at most `MOST` problems, and a note if there are more."""
    every = iter(found)
    first = list(itertools.islice(every, MOST))
    return [*first, _MORE] if next(every, None) is not None else first


def _is_about(problem: Problem, path: str) -> bool:
    within = problem.path == path or problem.path.startswith((f"{path}.", f"{path}["))
    return not path or within or re.search(rf"(?<![\w.]){re.escape(path)}(?!\w)", problem.text) is not None


@dataclass(frozen=True, slots=True)
class _Walk:
    strict: bool

    def value(self, info: inspect.Type, data: object, path: str, description: str) -> Iterator[Problem]:
        match info:
            case inspect.Metadata():
                said = (info.extra_json_schema or {}).get("description", description)
                yield from self.value(info.type, data, path, said)
            case inspect.StructType():
                yield from self._struct(info, data, path)
            case inspect.DictType():
                yield from self._dict(info, data, path)
            case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
                yield from self._sequence(info, data, path)
            case inspect.UnionType():
                yield from self._union(info, data, path, description)
            case _:
                yield from self._leaf(info, data, path, description)

    def _struct(self, info: inspect.StructType, data: object, path: str) -> Iterator[Problem]:
        names = [field.encode_name for field in info.fields]
        if not isinstance(data, Mapping):
            yield Problem(path, words.expected(words.struct_of(names), data))
            return
        for field in info.fields:
            inner = _at(path, field.encode_name)
            if field.encode_name in data:
                yield from self.value(field.type, data[field.encode_name], inner, "")
            elif field.required:
                yield Problem(inner, words.missing(_description(field.type)))
        if info.forbid_unknown_fields:
            for key in data:
                if key not in names:
                    meant = _near(key, names)
                    yield Problem(
                        _at(path, key), words.unknown_key(key, names, meant), _at(path, meant) if meant else ""
                    )

    def _dict(self, info: inspect.DictType, data: object, path: str) -> Iterator[Problem]:
        if not isinstance(data, Mapping):
            yield Problem(path, words.expected("keys and values", data))
            return
        for key, value in data.items():
            inner = _at(path, key)
            yield from (Problem(inner, f"as a key: {each.text}") for each in self.value(info.key_type, key, inner, ""))
            yield from self.value(info.value_type, value, inner, "")
        yield from _lengths(info, data, path)

    def _sequence(self, info: Any, data: object, path: str) -> Iterator[Problem]:
        if not isinstance(data, list | tuple | set | frozenset):
            yield Problem(path, words.expected("a list", data))
            return
        for index, item in enumerate(data):
            yield from self.value(info.item_type, item, f"{path}[{index}]", "")
        yield from _lengths(info, data, path)

    def _union(self, info: inspect.UnionType, data: object, path: str, description: str) -> Iterator[Problem]:
        why_not_json = _not_json(data)
        if why_not_json:
            yield Problem(path, why_not_json)
            return
        tries: list[list[Problem]] = []
        for each in info.types:
            found = list(itertools.islice(self.value(each, data, path, description), MOST + 1))
            if not found:
                return
            tries.append(found)
        fitting = [
            found
            for each, found in zip(info.types, tries, strict=True)
            if not isinstance(each, inspect.NoneType) and _same_shape(each, data)
        ]
        if len(fitting) == 1:
            yield from fitting[0]
        else:
            yield Problem(path, words.expected(words.one_of([words.name_of(each) for each in info.types]), data))

    def _leaf(self, info: inspect.Type, data: object, path: str, description: str) -> Iterator[Problem]:
        if isinstance(info, inspect.EnumType):
            if not _fits(info.cls, data, self.strict):
                yield Problem(
                    path, words.expected(words.one_of([str(each.value) for each in info.cls]), data, shown=True)
                )
            return
        if isinstance(info, inspect.LiteralType):
            if not _fits(Literal[info.values], data, self.strict):
                yield Problem(path, words.expected(words.one_of([str(each) for each in info.values]), data, shown=True))
            return
        if type(info) not in _BASES:
            return
        base = _BASES[type(info)]
        if type(data) is base and info == _UNLIMITED[type(info)] and not _not_json(data):
            return
        if not _fits(base, data, self.strict):
            yield Problem(
                path, words.expected(words.name_of(info), data, shown=True) + words.quotes_advised(info, data)
            )
            return
        value = msgspec.convert(data, base, strict=self.strict)
        why_not_json = _not_json(value)
        if why_not_json:
            yield Problem(path, why_not_json)
            return
        limits = {name: getattr(info, name) for name in words.LIMITS if getattr(info, name, None) is not None}
        if limits and not _fits(Annotated[base, Meta(**limits)], value, True):
            yield Problem(path, words.not_allowed(data, limits, description))


def _by_msgspec(wanted: Any, data: object, path: str, strict: bool) -> list[Problem]:
    try:
        msgspec.convert(data, wanted, strict=strict)
    except msgspec.ValidationError as error:
        parts = _MSGSPEC_PATH.match(str(error))
        text, inner = (parts["text"], parts["path"]) if parts else (str(error), "")
        text = text.replace("`", "")
        return [Problem(_at(path, inner) if inner else path, text[:1].lower() + text[1:])]
    return []


def _fits(wanted: Any, data: object, strict: bool) -> bool:
    try:
        msgspec.convert(data, wanted, strict=strict)
    except msgspec.ValidationError:
        return False
    return True


def _not_json(value: object) -> str:
    """Returns why JSON cannot contain the value, since every value may be sent on the bus; empty if it can."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, but must be a finite number"
    if isinstance(value, str) and not value.isascii() and _HALF_CHARACTER.search(value):
        return "contains half a character (a lone surrogate)"
    return ""


def _at(path: str, key: object) -> str:
    if isinstance(key, str) and len(key) > _LONGEST_KEY:
        key = f"{key[:_LONGEST_KEY]}…"
    if isinstance(key, str) and (_SIMPLE_KEY.match(key) or "." in key):
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"


def _same_shape(info: inspect.Type, data: object) -> bool:
    if isinstance(info, inspect.Metadata):
        return _same_shape(info.type, data)
    mapping = isinstance(info, inspect.StructType | inspect.DictType)
    listing = isinstance(info, inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType)
    if isinstance(data, Mapping):
        return mapping
    if isinstance(data, list | tuple):
        return listing
    return not mapping and not listing


def _description(info: inspect.Type) -> str:
    if isinstance(info, inspect.Metadata):
        return str((info.extra_json_schema or {}).get("description", ""))
    return ""


def _near(key: object, names: list[str]) -> str:
    if not isinstance(key, str) or len(key) > _LONGEST_KEY:
        return ""
    return next(iter(difflib.get_close_matches(key, names, n=1)), "")


def _lengths(info: Any, data: Any, path: str) -> Iterator[Problem]:
    least, most = info.min_length, info.max_length
    if least is not None and len(data) < least:
        yield Problem(path, f"has {len(data)} items, but must have at least {least}")
    if most is not None and len(data) > most:
        yield Problem(path, f"has {len(data)} items, but must have at most {most}")

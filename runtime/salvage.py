"""Structs built from the valid parts of wrong data, so that these parts can be checked too.

The caller decides which parts are valid. An invalid part gets its default, or the empty value of its type. Items of
lists keep their indexes.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import inspect

IsSound = Callable[[inspect.Type, object], bool]

_MISSING = object()
_EMPTY: dict[type, Any] = {
    inspect.StrType: "",
    inspect.IntType: 0,
    inspect.FloatType: 0.0,
    inspect.BoolType: False,
    inspect.VarTupleType: (),
}


def salvage(info: inspect.Type, data: object, is_sound: IsSound) -> Any:
    match info:
        case inspect.Metadata():
            return salvage(info.type, data, is_sound)
        case inspect.StructType():
            return _struct(info, data if isinstance(data, Mapping) else {}, is_sound)
        case inspect.DictType() if isinstance(data, Mapping):
            made = {key: salvage(info.value_type, value, is_sound) for key, value in data.items()}
            return {key: value for key, value in made.items() if value is not _MISSING}
        case inspect.VarTupleType() if isinstance(data, list | tuple):
            return tuple(_or_empty(salvage(info.item_type, item, is_sound), info.item_type) for item in data)
        case inspect.UnionType():
            return _union(info, data, is_sound)
        case inspect.EnumType() if is_sound(info, data):
            return info.cls(data)
        case _:
            return data if is_sound(info, data) else _MISSING


def _struct(info: inspect.StructType, data: Mapping[object, object], is_sound: IsSound) -> Any:
    made = {}
    for field in info.fields:
        given = data.get(field.encode_name, _MISSING)
        value = _MISSING if given is _MISSING else salvage(field.type, given, is_sound)
        if field.required:
            value = _or_empty(value, field.type)
        if value is not _MISSING:
            made[field.name] = value
    return info.cls(**made)


def _union(info: inspect.UnionType, data: object, is_sound: IsSound) -> Any:
    """Builds a section that may be left out, if the data has one."""
    sound = next((each for each in info.types if is_sound(each, data)), None)
    if sound is not None:
        return salvage(sound, data, is_sound)
    section = next((each for each in info.types if isinstance(each, inspect.StructType)), None)
    return salvage(section, data, is_sound) if section is not None else _MISSING


def _or_empty(value: Any, info: inspect.Type) -> Any:
    if value is not _MISSING:
        return value
    match info:
        case inspect.Metadata():
            return _or_empty(value, info.type)
        case inspect.StructType():
            return _struct(info, {}, lambda info, data: True)
        case _:
            return _EMPTY.get(type(info))

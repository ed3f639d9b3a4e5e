"""Applies the schema of a custom resource: sets defaults, drops unknown fields, refuses invalid values."""

import re
from collections.abc import Iterator
from typing import Any

from simulator.kubernetes.objects import Obj, clone
from simulator.kubernetes.problems import Cause

_WHOLE = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def complete(obj: Obj, schema: Obj) -> None:
    """Sets defaults and drops unknown fields in place, except in the fields that every object has."""
    keeps_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    known = schema.get("properties") or {}
    for name in [each for each in obj if each not in _WHOLE]:
        if name in known:
            _complete(obj[name], known[name])
        elif not keeps_unknown:
            del obj[name]
    for name, inner in known.items():
        if name not in obj and name not in _WHOLE and "default" in inner:
            obj[name] = clone(inner["default"])


def causes(obj: Obj, schema: Obj) -> list[Cause]:
    known = {name: inner for name, inner in (schema.get("properties") or {}).items() if name not in _WHOLE}
    found = [
        Cause(name, "Required value", "FieldValueRequired")
        for name in schema.get("required") or []
        if name not in obj and name not in _WHOLE
    ]
    for name, inner in known.items():
        if name in obj:
            found += _causes(obj[name], inner, name)
    return found


def _complete(value: Any, schema: Obj) -> None:
    if isinstance(value, list):
        for each in value:
            _complete(each, schema.get("items") or {})
    if not isinstance(value, dict):
        return
    known = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    keeps_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or bool(others) or not known
    for name in list(value):
        if name in known:
            _complete(value[name], known[name])
        elif isinstance(others, dict):
            _complete(value[name], others)
        elif not keeps_unknown:
            del value[name]
    for name, inner in known.items():
        if name not in value and "default" in inner:
            value[name] = clone(inner["default"])


def _causes(value: Any, schema: Obj, path: str) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string") and isinstance(value, int | str):
        return
    wanted = schema.get("type")
    if wanted in _TYPES and not _fits(value, wanted):
        shown = type(value).__name__
        yield Cause(path, f'Invalid value: "{shown}": {path} in body must be of type {wanted}: "{shown}"')
        return
    if "enum" in schema and value not in schema["enum"]:
        supported = ", ".join(f'"{each}"' for each in schema["enum"])
        yield Cause(path, f'Unsupported value: "{value}": supported values: {supported}', "FieldValueNotSupported")
    yield from _limits(value, schema, path)
    if isinstance(value, dict):
        yield from _inside(value, schema, path)
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _causes(each, schema.get("items") or {}, f"{path}[{index}]")


def _inside(value: Obj, schema: Obj, path: str) -> Iterator[Cause]:
    for name in schema.get("required") or []:
        if name not in value:
            yield Cause(f"{path}.{name}", "Required value", "FieldValueRequired")
    known = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for name, each in value.items():
        inner = known.get(name, others if isinstance(others, dict) else {})
        yield from _causes(each, inner, f"{path}.{name}")


def _limits(value: Any, schema: Obj, path: str) -> Iterator[Cause]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            text = f"Invalid value: {value}: {path} in body should be greater than or equal to {schema['minimum']}"
            yield Cause(path, text)
        if "maximum" in schema and value > schema["maximum"]:
            text = f"Invalid value: {value}: {path} in body should be less than or equal to {schema['maximum']}"
            yield Cause(path, text)
    if isinstance(value, str):
        if "pattern" in schema and re.search(schema["pattern"], value) is None:
            yield Cause(path, f"Invalid value: \"{value}\": {path} in body should match '{schema['pattern']}'")
        if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
            yield Cause(path, f'Invalid value: "{value}": {path} in body has the wrong length')
    if isinstance(value, list) and not (schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))):
        yield Cause(path, f"Invalid value: {path} in body has {len(value)} items")


def _fits(value: Any, wanted: str) -> bool:
    if isinstance(value, bool) and wanted != "boolean":
        return False
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])

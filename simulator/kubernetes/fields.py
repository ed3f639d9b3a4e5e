"""Sets of fields in the form of `managedFields`: `f:spec`, `k:{"name":"main"}`, `v:"text"`, `.` for an item itself."""

import json
from collections.abc import Iterator
from typing import Any

from simulator.kubernetes.merging import ONE_VALUE, ListKinds, Path
from simulator.kubernetes.objects import Obj

FieldPath = tuple[str, ...]
ITSELF = "."

_NEVER_OWNED = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink",
                "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "generateName",
            )
        ),
    }
)  # fmt: skip


def fields_of(obj: Obj, lists: ListKinds) -> frozenset[FieldPath]:
    """Every field that an applied configuration or an object sets."""
    return frozenset(path for path in _walk(obj, (), (), lists) if path and path[:2] not in _NEVER_OWNED)


def value_at(obj: Any, path: FieldPath) -> Any:
    """The value at the path, or None."""
    for element in path:
        obj = _step(obj, element)
        if obj is None:
            return None
    return obj


def without(obj: Any, path: FieldPath) -> Any:
    """The value without the field at the path and without the containers that this empties."""
    if path in ((), (ITSELF,)):
        return None
    kind, _, text = path[0].partition(":")
    if kind == "f" and isinstance(obj, dict) and text in obj:
        inner = without(obj[text], path[1:])
        rest = {name: value for name, value in obj.items() if name != text}
        return {**obj, text: inner} if inner not in (None, {}, []) else rest
    if kind in ("k", "v") and isinstance(obj, list):
        item = _step(obj, path[0])
        kept = (without(each, path[1:]) if each is item else each for each in obj)
        return [each for each in kept if each is not None]
    return obj


def is_identity(path: FieldPath) -> bool:
    """True for a field that identifies its list item."""
    if len(path) < 2 or not path[-2].startswith("k:"):
        return False
    return path[-1].removeprefix("f:") in json.loads(path[-2].removeprefix("k:"))


def to_fields_v1(paths: frozenset[FieldPath]) -> Obj:
    tree: Obj = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
    return tree


def from_fields_v1(tree: Obj) -> frozenset[FieldPath]:
    return frozenset(_leaves(tree, ()))


def readable(path: FieldPath) -> str:
    """The path as messages of conflicts show it: `.spec.template.spec.containers[name="main"].image`."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items()) + "]"
        elif kind == "v":
            text += f"[={rest}]"
    return text


def _walk(value: Any, path: FieldPath, names: Path, lists: ListKinds) -> Iterator[FieldPath]:
    if isinstance(value, dict) and value and lists(names) is not ONE_VALUE:
        for name, inner in value.items():
            yield from _walk(inner, (*path, f"f:{name}"), (*names, name), lists)
        return
    kind = lists(names) if isinstance(value, list) else None
    if kind is None:
        yield path
        return
    for item in value:
        if not kind.keys:
            yield (*path, f"v:{_json(item)}")
        else:
            inside = (*path, f"k:{_json({key: item.get(key) for key in kind.keys})}")
            yield (*inside, ITSELF)
            for name, inner in item.items():
                yield from _walk(inner, (*inside, f"f:{name}"), (*names, name), lists)


def _step(value: Any, element: str) -> Any:
    kind, _, text = element.partition(":")
    if element == ITSELF:
        return value
    if kind == "f":
        return value.get(text) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    wanted = json.loads(text)
    if kind == "v":
        return next((each for each in value if each == wanted), None)
    return next((each for each in value if all(each.get(key) == part for key, part in wanted.items())), None)


def _leaves(tree: Obj, path: FieldPath) -> Iterator[FieldPath]:
    for element, inner in tree.items():
        if inner:
            yield from _leaves(inner, (*path, element))
        else:
            yield (*path, element)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)

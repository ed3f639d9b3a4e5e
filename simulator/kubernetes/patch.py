"""Patches: JSON patch (RFC 6902), merge patch (RFC 7386), and Kubernetes' own strategic merge patch."""

from dataclasses import dataclass
from typing import Any

from simulator.kubernetes.merging import ONE_VALUE, ListKind, ListKinds, Path, built_in_lists
from simulator.kubernetes.objects import Obj, clone
from simulator.kubernetes.problems import bad_patch, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"


def json_patch(obj: Obj, operations: Any) -> Obj:
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    document: Any = clone(obj)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request("each operation of a JSON patch needs an op and a path")
        document = _operate(document, operation)
    if not isinstance(document, dict):
        raise bad_request("the patched document is not an object")
    return document


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return clone(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def strategic_patch(target: Obj, patch: Obj, lists: ListKinds = built_in_lists, *, applies: bool = False) -> Obj:
    """The patched object. Lists with keys are merged by key; an apply replaces a `ONE_VALUE` map as a whole."""
    return _Strategic(lists, applies).maps(clone(target), patch, ())


@dataclass(frozen=True, slots=True)
class _Strategic:
    lists: ListKinds
    applies: bool

    def maps(self, target: Obj, patch: Obj, path: Path) -> Obj:
        if patch.get(_DIRECTIVE) == "replace":
            return clone({name: value for name, value in patch.items() if name != _DIRECTIVE})
        merged = target
        if _RETAIN in patch:
            merged = {name: value for name, value in merged.items() if name in patch[_RETAIN]}
        for name, value in patch.items():
            if name.startswith(_DELETE_FROM):
                field = name.removeprefix(_DELETE_FROM)
                merged[field] = [each for each in merged.get(field) or [] if each not in value]
            elif name in (_DIRECTIVE, _RETAIN) or name.startswith(_ORDER):
                continue
            elif value is None or (isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"):
                merged.pop(name, None)
            else:
                merged[name] = self._value(merged.get(name), value, (*path, name))
        return merged

    def _value(self, target: Any, patch: Any, path: Path) -> Any:
        if isinstance(patch, dict) and not (self.applies and self.lists(path) is ONE_VALUE):
            return self.maps(target if isinstance(target, dict) else {}, patch, path)
        if isinstance(patch, list):
            kind = self.lists(path)
            if kind is not None:
                return self._lists(target if isinstance(target, list) else [], patch, kind, path)
        return clone(patch)

    def _lists(self, target: list[Any], patch: list[Any], kind: ListKind, path: Path) -> list[Any]:
        if not kind.keys:
            return target + [each for each in patch if each not in target]
        if {_DIRECTIVE: "replace"} in patch:
            return clone([each for each in patch if each != {_DIRECTIVE: "replace"}])
        kept = list(target)
        named: dict[str, Any] = {}
        for item in patch:
            identity = identity_of(item, kind)
            if identity is None:
                raise bad_request(f"{'.'.join(path)}: map does not contain declared merge key: {kind.keys[0]}")
            index = next((at for at, each in enumerate(kept) if identity_of(each, kind) == identity), None)
            if item.get(_DIRECTIVE) == "delete":
                if index is not None:
                    del kept[index]
                continue
            before = named.get(identity, {} if index is None else kept[index])
            named[identity] = self.maps(before, item, path)
        return _interleaved(named, kept, kind)


def _interleaved(named: dict[str, Any], before: list[Any], kind: ListKind) -> list[Any]:
    """The named items in the patch's order; each other item stays in front of the item that followed it."""
    places = {identity_of(item, kind): at for at, item in enumerate(before)}
    rest = [item for item in before if identity_of(item, kind) not in named]
    ordered: list[Any] = []
    for identity, item in named.items():
        at = places.get(identity)
        while rest and at is not None and places[identity_of(rest[0], kind)] < at:
            ordered.append(rest.pop(0))
        ordered.append(item)
    return ordered + rest


def identity_of(item: Any, kind: ListKind) -> str | None:
    if not isinstance(item, dict) or any(key not in item for key in kind.keys):
        return None
    return repr([item[key] for key in kind.keys])


def _operate(document: Any, operation: Obj) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, clone(operation.get("value")))
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            return _add(_remove(document, path) if path else document, path, clone(operation.get("value")))
        case "move":
            source = _pointer(operation.get("from", ""))
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, clone(_get(document, _pointer(operation.get("from", "")))))
        case "test":
            if _get(document, path) != operation.get("value"):
                raise bad_patch()
            return document
    raise bad_patch()


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise bad_request(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        else:
            raise bad_patch()
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and last == "-":
        parent.append(value)
    elif isinstance(parent, list) and last.isdigit() and int(last) <= len(parent):
        parent.insert(int(last), value)
    else:
        raise bad_patch()
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise bad_request("the whole document cannot be removed")
    _get(document, path)
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
    return document

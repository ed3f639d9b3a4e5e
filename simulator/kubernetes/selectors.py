"""Selectors: by labels and by fields, and the `matchLabels`/`matchExpressions` of specs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.kubernetes.objects import Obj, labels_of, meta
from simulator.kubernetes.problems import bad_request

Predicate = Callable[[Obj], bool]

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s+\(([^()]*)\)\s*$")
_EQUALS = re.compile(r"^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")
_FIELD = re.compile(r"^\s*([A-Za-z.]+)\s*(==|=|!=)\s*(.*?)\s*$")

FIELDS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.unschedulable",
        "status.phase",
        "status.podIP",
        "type",
        "reason",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
    }
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on the value of one label or field."""

    key: str
    operator: str
    """One of In, NotIn, Exists, DoesNotExist, Gt, Lt."""
    values: frozenset[str] = frozenset()

    def met_by(self, values: Mapping[str, str]) -> bool:
        value = values.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        bound = next(iter(self.values), "")
        if value is None or not _is_number(value) or not _is_number(bound):
            return False
        return int(value) > int(bound) if self.operator == "Gt" else int(value) < int(bound)


def by_labels(text: str) -> Predicate | None:
    """The predicate of a label selector; None if everything matches."""
    requirements = [_label_requirement(part) for part in _split(text)]
    if not requirements:
        return None
    return lambda obj: all(each.met_by(labels_of(obj)) for each in requirements)


def by_fields(text: str) -> Predicate | None:
    tests = []
    for part in (each for each in text.split(",") if each.strip()):
        found = _FIELD.match(part)
        if found is None:
            raise bad_request(f"invalid field selector {text!r}: can't understand {part!r}")
        path, operator, value = found.groups()
        if path not in FIELDS:
            raise bad_request(f"field label not supported: {path}")
        tests.append((tuple(path.split(".")), operator != "!=", value))
    if not tests:
        return None
    return lambda obj: all((field(obj, path) == value) is wanted for path, wanted, value in tests)


def by_spec(selector: Obj | None) -> Predicate:
    """The predicate of a LabelSelector in a spec; an empty one matches everything, a missing one nothing."""
    if selector is None:
        return lambda obj: False
    requirements = label_requirements(selector)
    return lambda obj: all(each.met_by(labels_of(obj)) for each in requirements)


def label_requirements(selector: Obj) -> list[Requirement]:
    found = [
        Requirement(key, "In", frozenset({str(value)})) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    return found + [requirement(each) for each in selector.get("matchExpressions") or []]


def requirement(expression: Obj) -> Requirement:
    values = frozenset(str(value) for value in expression.get("values") or [])
    return Requirement(str(expression.get("key", "")), str(expression.get("operator", "")), values)


def both(one: Predicate | None, other: Predicate | None) -> Predicate | None:
    if one is None or other is None:
        return one or other
    first, second = one, other
    return lambda obj: first(obj) and second(obj)


def field(obj: Obj, path: tuple[str, ...]) -> str:
    """The field's value as text, empty if it is missing, as the API server compares it."""
    if path[0] == "metadata":
        return str(meta(obj).get(path[1]) or "")
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return "false" if path == ("spec", "unschedulable") else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _label_requirement(part: str) -> Requirement:
    if found := _SET.match(part):
        key, operator, inside = found.groups()
        values = frozenset(value.strip() for value in inside.split(","))
        return Requirement(key, "In" if operator == "in" else "NotIn", values)
    if found := _EQUALS.match(part):
        key, operator, value = found.groups()
        return Requirement(key, "NotIn" if operator == "!=" else "In", frozenset({value}))
    if found := _EXISTS.match(part):
        return Requirement(found[2], "DoesNotExist" if found[1] else "Exists")
    raise bad_request(f"unable to parse requirement: {part!r}")


def _split(text: str) -> list[str]:
    """Splits at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    if len(parts) == 1 and not parts[0].strip():
        return []
    return parts


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()

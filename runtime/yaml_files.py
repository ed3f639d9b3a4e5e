"""Reads YAML files of users: bounded and strict. Each error names its place in the file.

In addition to safe loading, this module refuses duplicate keys (the first value would silently be lost), aliases (a few
lines can expand to gigabytes), and files that are too large or too deeply nested.
"""

import difflib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from runtime.errors import UserError
from runtime.paths import read_regular
from runtime.problems import Checks, decode_checked

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50


def yaml_file(
    path: Path, wanted: type[T], *, what: str = "", checks: Checks[T] | None = None, thorough: bool = False
) -> T:
    """Returns the typed value, or raises `UserError` with all problems and their paths."""
    data = load_yaml(_text(path), str(path))
    return decode_checked(wanted, data, what=what or str(path), checks=checks, thorough=thorough)


def load_yaml(text: str, name: str) -> object:
    """Returns plain data, or raises `UserError` with line and column."""
    try:
        loaded: object = _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{name}{where}: {_message(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{name}, line {line}: the character {error.character!r} is not allowed") from None
    if loaded is None:
        raise UserError(f"{name} is empty")
    return loaded


def _text(path: Path) -> str:
    try:
        content = read_regular(path, MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UserError(f"{path} is larger than {MAX_BYTES // 1024} KiB")
        return content.decode()
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [each.name for each in path.parent.glob("*.y*ml")], n=1)
        meant = f". Did you mean {path.with_name(near[0])}?" if near else ""
        raise UserError(f"There is no file {path}{meant}", "give the path of a file that is there") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: this is not UTF-8 text") from None


def _message(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    return ", ".join(parts) or "this is not YAML"


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._untyped: Any = self

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self._untyped.peek_event()
        if self.check_event(yaml.AliasEvent):
            problem = f"aliases such as *{event.anchor} are not supported; repeat the text"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            problem = f"this is nested more than {MAX_DEPTH} deep"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError:
            problem = f"this is not a valid {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first_line: dict[str, int] = {}
        for key, _value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in first_line:
                    problem = f"the key '{key.value}' is already in line {first_line[key.value]}"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                first_line[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)

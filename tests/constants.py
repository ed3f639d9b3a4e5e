"""Numbers and defaults of a package, for tables that a test compares with them."""

import ast
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, structs

ROOT = Path(__file__).parent.parent


def constants(package: str) -> dict[str, float]:
    """The numeric constants of all modules of a package, as `module.NAME`."""
    found: dict[str, float] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float() as value)):
                    found[f"{path.stem}.{name}"] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() | float() as value)):
                    found[f"{path.stem}.{name}"] = value
    return found


def defaults(*classes: Any) -> Iterator[tuple[str, Any]]:
    """The default of each field that has one, as `Class.field`; of Structs, dataclasses and named tuples."""
    for each in classes:
        named: dict[str, Any]
        if hasattr(each, "__struct_fields__"):
            named = {field.name: field.default for field in structs.fields(each) if field.default is not NODEFAULT}
        elif hasattr(each, "_field_defaults"):
            named = each._field_defaults
        else:
            named = {field.name: field.default for field in fields(each) if field.default is not MISSING}
        for name, default in named.items():
            yield f"{each.__name__}.{name}", default

"""Settings of a process: from the environment and from flags, read once, all problems reported together."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from runtime.decoding import problems
from runtime.errors import UserError

T = TypeVar("T", bound=Struct)

PREFIX = "TRADEWIND_"
NATS_PREFIX = "TRADEWIND_NATS_"


class BusSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach the bus: `TRADEWIND_NATS_URL` and so on."""

    url: str = "nats://127.0.0.1:4222"
    """One server, or several with commas between; `nats://user:password@host` and `tls://host` work too."""
    name: str = "tradewind"
    """Who speaks: the sender in every envelope and the name of the connection, e.g. `master/host-123`."""
    connect_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """How long one try of the first connection lasts. A role tries again until a server answers; a command does not."""
    credentials: str | None = None
    """A NATS credentials file, where the server asks for one."""


def read_settings(
    settings_type: type[T], environ: Mapping[str, str], flags: Mapping[str, object] | None = None, prefix: str = PREFIX
) -> T:
    """A field's value is its flag, else its environment variable `<prefix><FIELD>`, else its default.

    A flag that is None was not given. An empty environment variable counts as not set.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    values: dict[str, object] = {}
    called: dict[str, str] = {}
    for field in msgspec.structs.fields(settings_type):
        variable = f"{prefix}{field.name.upper()}"
        called[field.name] = variable
        if field.name in given:
            called[field.name] = f"--{field.name.replace('_', '-')}"
            values[field.name] = given.pop(field.name)
        elif environ.get(variable):
            values[field.name] = environ[variable]
    if given:
        raise KeyError(f"{', '.join(given)}: no such setting in {settings_type.__name__}")
    found = problems(settings_type, values, strict=False)
    if found:
        lines = tuple(f"{called.get(problem.path, problem.path)}: {problem.text}" for problem in found)
        raise UserError("The settings cannot be used:", "correct these variables or flags", lines)
    return msgspec.convert(values, settings_type, strict=False)

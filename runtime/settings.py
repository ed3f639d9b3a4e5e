"""Settings of a process, from environment and flags. Reports all problems together."""

from collections.abc import Mapping
from typing import Annotated, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from runtime.errors import UserError
from runtime.problems import problems

T = TypeVar("T", bound=Struct)

PREFIX = "TRADEWIND_"
NATS_PREFIX = "TRADEWIND_NATS_"
KUBECONFIG_VARIABLE = "KUBECONFIG"


class BusSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach the bus: `TRADEWIND_NATS_URL` and so on."""

    url: str = "nats://127.0.0.1:4222"
    """One server, or several separated by commas; `nats://user:password@host` and `tls://host` work too."""
    name: str = "tradewind"
    """The sender in each envelope and the name of the connection, e.g. `master/host-123`."""
    connect_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """Seconds of one try of the first connection. A role retries until a server answers; a command does not."""
    credentials: str | None = None
    """A NATS credentials file, if the server requires one."""


class AgentSettings(Protocol):
    """The settings by which an agent reaches the bus."""

    @property
    def nats_url(self) -> str: ...

    @property
    def nats_credentials(self) -> str | None: ...

    @property
    def connect_timeout_s(self) -> float: ...


def bus_settings_of(settings: AgentSettings, name: str) -> BusSettings:
    return BusSettings(
        url=settings.nats_url,
        name=name,
        connect_timeout_s=settings.connect_timeout_s,
        credentials=settings.nats_credentials,
    )


def read_settings(
    settings_type: type[T], environ: Mapping[str, str], flags: Mapping[str, object] | None = None, prefix: str = PREFIX
) -> T:
    """Reads each field from its flag, else from the variable `<prefix><FIELD>`, else uses its default.

    A flag with None counts as not given, an empty environment variable as not set.
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


def read_settings_with_kubeconfig(settings_type: type[T], environ: Mapping[str, str]) -> T:
    """Reads settings with a field `kubeconfig`: from `TRADEWIND_KUBECONFIG`, else from the variable of kubectl."""
    if environ.get(f"{PREFIX}{KUBECONFIG_VARIABLE}"):
        return read_settings(settings_type, environ)
    return read_settings(settings_type, environ, {"kubeconfig": environ.get(KUBECONFIG_VARIABLE) or None})

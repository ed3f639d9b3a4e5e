"""Everything that can be set about a master. Each is a variable `TRADEWIND_<NAME>` and a flag of `tradewind master`."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs

from controlplane.api.access import is_loopback
from controlplane.fleet.files import read_fleet
from controlplane.stores.servers import StorePlace
from runtime.errors import UserError
from runtime.settings import NATS_PREFIX, BusSettings, read_settings

Port = Annotated[int, Meta(ge=0, le=65_535)]
Bytes = Annotated[int, Meta(ge=1_000_000)]
EVERYWHERE = ("0.0.0.0", "::", "")
_PORTS = re.compile(r"^(\d{1,5})-(\d{1,5})$")


class MasterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bus: BusSettings = BusSettings()
    """From `TRADEWIND_NATS_URL` and the other `TRADEWIND_NATS_*` variables."""
    api_host: str = "127.0.0.1"
    """Where the HTTP API listens; anywhere but on this machine it needs a token."""
    api_port: Port = 8800
    api_token: str = ""
    """With it every request but /healthz must carry `Authorization: Bearer <token>`."""
    store_host: str = "127.0.0.1"
    """Where trainers reach the stores: an address of this machine that theirs can connect to."""
    store_bind: str = ""
    """The IPv4 address the stores listen on, if it is not `store_host`: `0.0.0.0` behind a name or a service."""
    store_ports: str = "29400-29499"
    """Each generation of each job takes one of these, and gives it back when the next one has begun."""
    fleet: str = ""
    """A fleet file: with it nodes for jobs are had from a cloud; without, workers come from static clusters only."""
    pods_nats_url: str = ""
    """The bus as pods of the fleet's clusters reach it, if not as this process does."""
    events_max_bytes: Bytes = 256_000_000
    logs_max_bytes: Bytes = 1_000_000_000
    """Streams forget their oldest when they are full."""
    keep_days: Annotated[float, Meta(gt=0, le=3650)] = 14.0
    """Streams forget what is older."""
    keep_jobs: Annotated[int, Meta(ge=0, le=10_000)] = 200
    """Ended jobs that stay listed; the oldest are forgotten when new ones come, and their names are free again."""
    lease_s: Annotated[int, Meta(ge=2, le=60)] = 2
    """How long the lead lasts without being renewed: so long after it died at the latest, a standby takes over."""
    drain_s: Annotated[float, Meta(ge=0, le=60)] = 5.0
    """How long a master that was asked to end tries to send what waits to be sent. Jobs go on without it."""


def read_master_settings(environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> MasterSettings:
    """Flags are named as the fields; `nats_url` stands for the bus."""
    given = dict(flags or {})
    bus = read_settings(BusSettings, environ, {"url": given.pop("nats_url", None)}, NATS_PREFIX)
    own = read_settings(MasterSettings, environ, given)
    return structs.replace(own, bus=structs.replace(bus, name=f"master/{socket.gethostname()}-{os.getpid()}"))


def check(settings: MasterSettings) -> None:
    """What no single value can show; a `UserError` says what to do."""
    store_place(settings)
    if settings.fleet:
        read_fleet(Path(settings.fleet))
    if not settings.api_token and not is_loopback(settings.api_host):
        raise UserError(
            f"The API runs what it is told to, so it does not listen on {settings.api_host} without a token.",
            "set TRADEWIND_API_TOKEN to a secret of your choice, or leave --api-host at 127.0.0.1",
        )


def store_place(settings: MasterSettings) -> StorePlace:
    match = _PORTS.match(settings.store_ports)
    port_from, port_to = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= port_from <= port_to <= 65_535:
        raise UserError(
            f"{settings.store_ports!r} is not a range of ports.", "--store-ports 29400-29499, or a single 29400-29400"
        )
    return StorePlace(settings.store_host, settings.store_bind or settings.store_host, port_from, port_to)


def advertised_url(settings: MasterSettings, port: int) -> str:
    """Where others reach the API: if it listens everywhere, where they reach the stores."""
    host = settings.store_host if settings.api_host in EVERYWHERE else settings.api_host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

"""Settings of a master. Each is a variable `TRADEWIND_<NAME>` and a flag of `tradewind master`."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs

from controlplane.api.access import is_loopback
from controlplane.clouds.spec import Fleet
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
    """`TRADEWIND_NATS_URL` and the other `TRADEWIND_NATS_*` variables."""
    api_host: str = "127.0.0.1"
    """Address on which the HTTP API listens; any other than a loopback address needs a token."""
    api_port: Port = 8800
    api_token: str = ""
    """If set, every request but /healthz must have the header `Authorization: Bearer <token>`."""
    store_host: str = "127.0.0.1"
    """Address of this machine to which trainers connect for the stores."""
    store_bind: str = ""
    """IPv4 address on which the stores listen, if not `store_host`: `0.0.0.0` behind a name or a service."""
    store_ports: str = "29400-29499"
    """Ports for the stores. Each generation of each job uses one until the next generation has begun."""
    fleet: str = ""
    """A fleet file: jobs get nodes from a cloud. Without it workers come from static clusters only."""
    pods_nats_url: str = ""
    """URL of the bus for pods of the fleet's clusters, if it differs from this process's."""
    events_max_bytes: Bytes = 256_000_000
    """Size of the stream of events; a full stream drops its oldest messages."""
    logs_max_bytes: Bytes = 1_000_000_000
    """Size of the stream of logs; a full stream drops its oldest messages."""
    keep_days: Annotated[float, Meta(gt=0, le=3650)] = 14.0
    """Days after which the streams drop a message."""
    keep_jobs: Annotated[int, Meta(ge=0, le=10_000)] = 200
    """Ended jobs that stay listed; a new job removes the oldest, and their names are free again."""
    lease_s: Annotated[int, Meta(ge=2, le=60)] = 2
    """Seconds that the lease lasts without renewal, after which a standby takes over."""
    drain_s: Annotated[float, Meta(ge=0, le=60)] = 5.0
    """Seconds that an ending master may spend on sending queued messages. Jobs continue without it."""


def read_master_settings(environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> MasterSettings:
    """Reads settings from the environment and from flags named as the fields; `nats_url` sets the bus."""
    given = dict(flags or {})
    bus = read_settings(BusSettings, environ, {"url": given.pop("nats_url", None)}, NATS_PREFIX)
    own = read_settings(MasterSettings, environ, given)
    return structs.replace(own, bus=structs.replace(bus, name=f"master/{socket.gethostname()}-{os.getpid()}"))


def check(settings: MasterSettings) -> None:
    """Checks rules that concern several values. Raises `UserError`."""
    store_place(settings)
    fleet_of(settings)
    if not settings.api_token and not is_loopback(settings.api_host):
        raise UserError(
            f"The API runs code of its clients, so it does not listen on {settings.api_host} without a token.",
            "set TRADEWIND_API_TOKEN to a secret of your choice, or leave --api-host at 127.0.0.1",
        )


def fleet_of(settings: MasterSettings) -> Fleet | None:
    """Reads the fleet file; None without one. Raises `UserError`."""
    return read_fleet(Path(settings.fleet)) if settings.fleet else None


def store_place(settings: MasterSettings) -> StorePlace:
    match = _PORTS.match(settings.store_ports)
    port_from, port_to = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= port_from <= port_to <= 65_535:
        raise UserError(
            f"{settings.store_ports!r} is not a range of ports.",
            "--store-ports 29400-29499, or 29400-29400 for a single port",
        )
    return StorePlace(settings.store_host, settings.store_bind or settings.store_host, port_from, port_to)


def advertised_url(settings: MasterSettings, port: int) -> str:
    """URL of the API for others; the host is that of the stores if the API listens on all addresses."""
    host = settings.store_host if settings.api_host in EVERYWHERE else settings.api_host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

"""The trial's requests to Google, which use the same commands as a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from messages.decoding import Undecodable, decode
from messages.labels import FLEET_LABEL, JOB_LABEL
from runtime.errors import UserError
from tradewind.trial.commands import Commands, Ran, WouldChange, output_of

T = TypeVar("T")

CHANGE_S = 300.0


class QuotaLine(Struct, frozen=True):
    metric: str = ""
    limit: float = 0.0
    usage: float = 0.0


class Quotas(Struct, frozen=True):
    quotas: tuple[QuotaLine, ...] = ()


class Scheduling(Struct, frozen=True, rename="camel"):
    provisioning_model: str = "STANDARD"


class Machine(Struct, frozen=True, rename="camel"):
    name: str
    id: str = ""
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    status: str = ""
    scheduling: Scheduling = Scheduling()

    @property
    def is_spot(self) -> bool:
        return self.scheduling.provisioning_model == "SPOT"

    @property
    def zone_name(self) -> str:
        return self.zone.rpartition("/")[2]


class Named(Struct, frozen=True):
    name: str


class PoolConfig(Struct, frozen=True):
    labels: Mapping[str, str] = field(default_factory=dict)


class NodePool(Struct, frozen=True):
    name: str
    config: PoolConfig = PoolConfig()


class Billed(Struct, frozen=True):
    """A row of the billing export. BigQuery writes numbers as text; without data the fields are null."""

    usd: Annotated[str, Meta(pattern=r"^-?\d+(\.\d+)?([eE]-?\d+)?\Z")] | float | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True)
class ProbePool:
    """A pool that the trial requests to see how Google refuses it."""

    name: str
    cluster: str
    location: str
    zone: str
    machine_type: str
    accelerator: str
    nodes: int
    accelerators: int = 1
    spot: bool = True
    disk_gb: int = 50


class Gcloud:
    def __init__(self, run: Commands, project: str, fleet: str, *, dry_run: bool) -> None:
        self._run = run
        self._project = project
        self._fleet = fleet
        self._dry_run = dry_run

    async def account(self) -> str:
        """The account that is logged in; empty if none is."""
        ran = await self._run("gcloud", "auth", "list", "--filter=status:ACTIVE", "--format=value(account)")
        return output_of(ran, "read the account of gcloud").strip()

    async def services(self) -> set[str]:
        out = await self._text("list the enabled APIs", "services", "list", "--enabled", "--format=value(config.name)")
        return set(out.split())

    async def region_quotas(self, region: str) -> Sequence[QuotaLine]:
        action = f"read the quotas of {region}"
        return (await self._json(action, Quotas, "compute", "regions", "describe", region)).quotas

    async def project_quotas(self) -> Sequence[QuotaLine]:
        action = "read the quotas of the project"
        return (await self._json(action, Quotas, "compute", "project-info", "describe")).quotas

    async def default_account(self) -> str:
        """The account of nodes without an explicit account."""
        out = await self._run("gcloud", "projects", "describe", self._project, "--format=value(projectNumber)")
        return f"{output_of(out, 'read the project number').strip()}-compute@developer.gserviceaccount.com"

    async def roles_of(self, account: str) -> set[str]:
        ran = await self._run(
            *("gcloud", "projects", "get-iam-policy", self._project, "--flatten=bindings[].members"),
            *(f"--filter=bindings.members:serviceAccount:{account}", "--format=value(bindings.role)"),
        )
        return set(output_of(ran, "read the IAM policy").split())

    async def machines(self, job: str = "") -> Sequence[Machine]:
        """Machines of the fleet, or of one of its jobs."""
        wanted = f"labels.{JOB_LABEL}={job}" if job else f"labels.{FLEET_LABEL}={self._fleet}"
        return await self._json(
            "list machines", tuple[Machine, ...], "compute", "instances", "list", f"--filter={wanted}"
        )

    async def disks(self, job: str) -> Sequence[Named]:
        wanted = f"--filter=labels.{JOB_LABEL}={job}"
        return await self._json("list disks", tuple[Named, ...], "compute", "disks", "list", wanted)

    async def pools(self, cluster: str, location: str) -> Sequence[NodePool]:
        where = (f"--cluster={cluster}", f"--location={location}")
        return await self._json(f"list the pools of {cluster}", tuple[NodePool, ...], *_POOLS, "list", *where)

    async def preempt(self, machine: Machine) -> None:
        """Simulate a maintenance event, which ends a spot machine with its usual notice."""
        ran = await self._change(
            *("compute", "instances", "simulate-maintenance-event", machine.name, f"--zone={machine.zone_name}")
        )
        output_of(ran, f"simulate maintenance of {machine.name}")

    async def create_pool(self, pool: ProbePool, within_s: float) -> Ran:
        return await self._change(
            *(*_POOLS, "create", pool.name, f"--cluster={pool.cluster}", f"--location={pool.location}"),
            *(f"--node-locations={pool.zone}", f"--machine-type={pool.machine_type}", f"--num-nodes={pool.nodes}"),
            *(f"--accelerator=type={pool.accelerator},count={pool.accelerators}", f"--disk-size={pool.disk_gb}"),
            *(("--spot",) if pool.spot else ()),
            within_s=within_s,
        )

    async def delete_pool(self, name: str, cluster: str, location: str, within_s: float = 1800.0) -> None:
        ran = await self._change(
            *(*_POOLS, "delete", name, f"--cluster={cluster}", f"--location={location}"), within_s=within_s
        )
        output_of(ran, f"delete the pool {name}")

    async def billed(self, table: str, job: str, since: float) -> Billed:
        """The billed cost of the job's machines: cores, memory and GPUs."""
        query = (
            "SELECT SUM(cost) AS usd, MAX(usage_end_time) AS until "
            f"FROM `{table}`, UNNEST(labels) AS label "
            f"WHERE label.key = '{JOB_LABEL}' AND label.value = '{job}' "
            f"AND usage_start_time >= TIMESTAMP_SECONDS({int(since)}) "
            "AND REGEXP_CONTAINS(sku.description, r'Core|Ram|GPU')"
        )
        ran = await self._run(
            "bq", f"--project_id={self._project}", "query", "--use_legacy_sql=false", "--format=json", query
        )
        rows = _decoded(output_of(ran, "query the billing export"), tuple[Billed, ...], "the billing export")
        return rows[0] if rows else Billed()

    async def _json(self, action: str, wanted: type[T], *argv: str) -> T:
        return _decoded(await self._text(action, *argv, "--format=json"), wanted, action)

    async def _text(self, action: str, *argv: str) -> str:
        return output_of(await self._run("gcloud", *argv, f"--project={self._project}"), action)

    async def _change(self, *argv: str, within_s: float = CHANGE_S) -> Ran:
        whole = ("gcloud", *argv, f"--project={self._project}", "--quiet")
        if self._dry_run:
            raise WouldChange(" ".join(whole))
        return await self._run(*whole, within_s=within_s)


_POOLS = ("container", "node-pools")


def _decoded(text: str, wanted: type[T], action: str) -> T:
    try:
        return decode(text.encode(), wanted)
    except (Undecodable, msgspec.MsgspecError) as error:
        raise UserError(f"cannot {action}: the answer has another format: {error}") from None

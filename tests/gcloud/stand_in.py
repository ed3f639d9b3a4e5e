"""A stand-in for the commands of gcloud and bq that the trial uses, on the simulator's APIs."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from msgspec import Struct, field

from controlplane.catalog.accelerators import canonical
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.gke import requests
from controlplane.clouds.gke.client import GkeClient
from controlplane.clouds.gke.credentials import token_fetcher
from controlplane.clouds.gke.failures import CallFailed
from controlplane.clouds.gke.settings import GkeSettings, NodeConfig
from controlplane.clouds.gke.tokens import AccessTokens
from controlplane.clouds.interface import PoolPlan, PoolRef
from messages.ids import ClusterName
from messages.labels import JOB_LABEL
from tests.gcloud.syntax import Parsed, Wrong, parse

POLL_S = 0.02
_HTTP = {
    "PERMISSION_DENIED": 403,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "ALREADY_EXISTS": 409,
    "NOT_FOUND": 404,
}


class Google(Struct, frozen=True):
    """The address of the simulator, and state for which it has no API."""

    url: str
    endpoint: str
    key: str
    project: str
    account: str = "me@example.com"
    """The account that is logged in; empty: none."""
    services: tuple[str, ...] = ()
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lost_disks: tuple[str, ...] = ()
    bill_factor: float | None = 1.0
    """The ratio of the exported cost to the simulator's bill; None: no export yet."""
    stockout_text: str = ""
    """The message of the operation instead of the simulator's."""


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str = ""
    err: str = ""


async def answer(google: Google, program: str, argv: Sequence[str]) -> Answer:
    try:
        parsed = parse(program, argv)
    except Wrong as wrong:
        return Answer(2, err=f"ERROR: ({program}) {wrong}\n")
    if program == "bq":
        return await _bill(google, parsed)
    settings = GkeSettings(
        project=google.project,
        endpoint=google.endpoint,
        insecure=True,
        compute_url=f"{google.url}/compute/v1",
        credentials_file=google.key,
    )
    tokens = AccessTokens(token_fetcher(google.key, google.project))
    try:
        return await _Commands(google, settings, tokens).run(parsed)
    except CallFailed as failed:
        said = f"ResponseError: code={_HTTP.get(failed.code, 500)}, message={failed.message}"
        return Answer(1, err=f"ERROR: (gcloud.{parsed.command.replace(' ', '.')}) {said}\n")
    finally:
        await tokens.close()


class _Commands:
    def __init__(self, google: Google, settings: GkeSettings, tokens: AccessTokens) -> None:
        self._google = google
        self._settings = settings
        self._tokens = tokens

    async def run(self, parsed: Parsed) -> Answer:
        named, project = parsed.positionals, self._google.project
        match parsed.command:
            case "auth list":
                return Answer(0, f"{self._google.account}\n")
            case "services list":
                return Answer(0, "\n".join(self._google.services))
            case "projects describe":
                return Answer(0, "123456789\n")
            case "projects get-iam-policy":
                account = parsed.flags["--filter"].rpartition("serviceAccount:")[2]
                return Answer(0, "\n".join(self._google.roles.get(account, ())))
            case "compute regions describe":
                return Answer(0, json.dumps(await self._compute(f"projects/{project}/regions/{named[0]}")))
            case "compute project-info describe":
                return Answer(0, json.dumps(await self._compute(f"projects/{project}")))
            case "compute instances list":
                return Answer(0, json.dumps(await self._instances(parsed.flags["--filter"])))
            case "compute disks list":
                names = [each["name"] for each in await self._instances(parsed.flags["--filter"])]
                return Answer(0, json.dumps([{"name": name} for name in (*names, *self._google.lost_disks)]))
            case "compute instances simulate-maintenance-event":
                return await self._control("maintenance", {"node": named[0]})
            case "container node-pools list" | "container node-pools create" | "container node-pools delete":
                client = GkeClient(self._settings, self._tokens)
                try:
                    return await self._pools(client, parsed)
                finally:
                    await client.close()
            case other:
                return Answer(2, err=f"ERROR: the stand-in does not carry out {other!r}\n")

    async def _pools(self, client: GkeClient, parsed: Parsed) -> Answer:
        cluster, location = ClusterName(parsed.flags["--cluster"]), parsed.flags["--location"]
        if parsed.command.endswith("list"):
            found = [each for each in await client.clusters() if each.info.name == cluster]
            pools = [pool for each in found for pool in each.info.pools]
            return Answer(
                0, json.dumps([{"name": pool.ref.pool, "config": {"labels": dict(pool.labels)}} for pool in pools])
            )
        name = parsed.positionals[0]
        if parsed.command.endswith("delete"):
            operation = await client.delete_pool(location, PoolRef(cluster, name))
        else:
            operation = await client.create_pool(_request(self._settings, location, cluster, name, parsed.flags))
        while not operation.ended:
            await asyncio.sleep(POLL_S)
            operation = await client.operation(location, operation.name)
        if operation.error is None:
            return Answer(0, "[]")
        said = self._google.stockout_text or operation.message
        text = f"Operation [<Operation\n name: '{operation.name}'>] finished with error: {said}"
        return Answer(1, err=f"ERROR: (gcloud.{parsed.command.replace(' ', '.')}) {text}\n")

    async def _instances(self, wanted: str) -> list[dict[str, Any]]:
        project = self._google.project
        reported = await self._compute(f"projects/{project}/aggregated/instances", {"filter": wanted})
        return [each for scope in reported.get("items", {}).values() for each in scope["instances"]]

    async def _compute(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        headers = (await self._tokens.get()).headers
        url = f"{self._settings.compute_url}/{path}"
        async with aiohttp.ClientSession() as http, http.get(url, params=query, headers=headers) as response:
            reported: dict[str, Any] = await response.json()
            return reported

    async def _control(self, what: str, body: object) -> Answer:
        url = f"{self._google.url}/control/{what}"
        async with aiohttp.ClientSession() as http, http.post(url, json=body) as response:
            return Answer(0) if response.status == 200 else Answer(1, err=f"ERROR: {await response.text()}\n")


def _request(
    settings: GkeSettings, location: str, cluster: ClusterName, name: str, flags: Mapping[str, str]
) -> requests.Request:
    accelerator = dict(part.split("=") for part in flags["--accelerator"].split(","))
    plan = PoolPlan(
        name=name,
        kind=MachineKind(
            flags["--node-locations"],
            flags["--machine-type"],
            canonical(accelerator["type"]),
            int(accelerator["count"]),
            "--spot" in flags,
        ),
        size=int(flags["--num-nodes"]),
    )
    nodes = NodeConfig(disk_gb=int(flags["--disk-size"]))
    return requests.create_pool(requests.Names(settings.project), location, cluster, plan, nodes)


async def _bill(google: Google, parsed: Parsed) -> Answer:
    query = parsed.positionals[-1]
    job = query.partition("label.value = '")[2].partition("'")[0]
    if google.bill_factor is None:
        return Answer(0, json.dumps([{"usd": None, "until": None}]))
    url = f"{google.url}/bill?label={JOB_LABEL}={job}"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        usd = (await response.json())["micro_usd"] / 1e6 * google.bill_factor
    return Answer(0, json.dumps([{"usd": f"{usd:.9f}", "until": "2100-01-01 00:00:00 UTC"}]))

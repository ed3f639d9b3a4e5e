"""Checks that Tradewind understands Google's refusals: a stockout, and a request above the quota."""

import re
import time

from controlplane.allocator.offers import pool_plan
from controlplane.catalog.places import region_of
from controlplane.clouds.gke.classify import OperationReport, call_outcome, operation_outcome
from controlplane.clouds.gke.failures import CallFailed, Code
from controlplane.clouds.gke.fleet_file import gke_config
from controlplane.clouds.gke.quotas import needs
from controlplane.clouds.outcomes import Outcome, QuotaExceeded, StockedOut
from controlplane.clouds.spec import ClusterSpec
from controlplane.fleet.interpretation import complete, offers
from messages.ids import JobName
from runtime.errors import UserError
from tradewind.trial.commands import TIMED_OUT, Ran
from tradewind.trial.gcloud import ProbePool
from tradewind.trial.setup_checks import quotas_of
from tradewind.trial.stage import Trial
from tradewind.trial.verdicts import Verdict, failed, passed, skipped

STOCKOUT_PROBE = "trial-stockout"
QUOTA_PROBE = "trial-quota"
PROBES = (STOCKOUT_PROBE, QUOTA_PROBE)
PROBE_NODES_AT_MOST = 8
"""More nodes would cost too much if Google granted them."""
SAID_AT_MOST = 300

_CODES = {
    400: Code.INVALID_ARGUMENT,
    403: Code.PERMISSION_DENIED,
    409: Code.ALREADY_EXISTS,
    429: Code.RESOURCE_EXHAUSTED,
}
_CODE = re.compile(r"\bcode=(\d{3})\b")


async def stockout(trial: Trial) -> Verdict:
    scarce = trial.scarce
    cluster = _cluster_with(trial, scarce.zone)
    if cluster is None:
        return skipped(f"no cluster of the fleet has the zone {scarce.zone}; choose another with --scarce")
    pool = ProbePool(
        name=STOCKOUT_PROBE,
        cluster=cluster.name,
        location=cluster.location,
        zone=scarce.zone,
        machine_type=scarce.machine_type,
        accelerator=scarce.accelerator,
        nodes=1,
    )
    ran, took_s = await _probed(trial, pool, trial.bounds.stockout_s)
    what = f"1 × {scarce.machine_type} in {scarce.zone}"
    if ran.code == 0:
        return skipped(f"{what} started after {took_s:.0f} s: it is not scarce now; choose another with --scarce")
    if ran.code == TIMED_OUT:
        return failed(f"{what} neither started nor was refused within {trial.bounds.stockout_s:g} s")
    outcome = _understood(trial, ran)
    if isinstance(outcome, StockedOut):
        return passed(f"{what}: stockout after {took_s:.0f} s: {outcome.detail[:SAID_AT_MOST]}")
    if isinstance(outcome, QuotaExceeded):
        return skipped(f"{what}: the quota is too small to see a stockout: {outcome.detail[:SAID_AT_MOST]}")
    return failed(misunderstood(what, outcome, _said(ran)))


async def quota(trial: Trial) -> Verdict:
    offer = next((each for each in offers(trial.fleet) if each.accelerator is not None), None)
    cluster = None if offer is None else _cluster_with(trial, offer.zone)
    if offer is None or cluster is None:
        return skipped("no offer of the fleet has a GPU")
    known = await quotas_of(trial, region_of(offer.zone))
    plan = complete(trial.fleet, pool_plan(JobName(trial.spec.name), offer, 1), {})
    taken = needs(plan, known, gke_config(trial.fleet))
    room = min(
        (int((quota.limit - quota.usage) // taken[quota.key]) for quota in known if quota.key in taken), default=0
    )
    if room >= PROBE_NODES_AT_MOST:
        return skipped(f"the quotas have room for {room} nodes; if Google grants one more, that costs too much")
    pool = ProbePool(
        name=QUOTA_PROBE,
        cluster=cluster.name,
        location=cluster.location,
        zone=offer.zone,
        machine_type=offer.machine_type,
        accelerator=offer.accelerator or "",
        accelerators=offer.accelerators_per_node,
        nodes=max(0, room) + 1,
        spot=offer.spot,
        disk_gb=trial.fleet.nodes.disk.size_gb,
    )
    ran, took_s = await _probed(trial, pool, trial.bounds.refused_s)
    what = f"{pool.nodes} × {pool.machine_type} with room for {max(0, room)}"
    if ran.code in (0, TIMED_OUT):
        return failed(f"{what}: Google did not refuse it within {took_s:.0f} s; the pool was deleted")
    outcome = _understood(trial, ran)
    if not isinstance(outcome, QuotaExceeded):
        return failed(misunderstood(what, outcome, _said(ran)))
    if not outcome.shortfalls:
        return failed(f"{what}: refused, but Tradewind finds no metric in: {_said(ran)}")
    metrics = ", ".join(f"{short.metric} ({short.available:g} free)" for short in outcome.shortfalls)
    return passed(f"{what}: refused after {took_s:.0f} s for {metrics}")


def misunderstood(what: str, outcome: Outcome, refusal: str) -> str:
    return f"{what}: Tradewind classifies this refusal as {type(outcome).__name__}: {refusal}"


async def take_down_probes(trial: Trial) -> None:
    """Delete the pools of the probes. Raises `UserError` if that fails."""
    for cluster in trial.fleet.clusters:
        await _take_down(trial, cluster.name, cluster.location, PROBES)


async def _probed(trial: Trial, pool: ProbePool, within_s: float) -> tuple[Ran, float]:
    began_s = time.monotonic()
    ran = await trial.gcloud.create_pool(pool, within_s)
    took_s = time.monotonic() - began_s
    await _take_down(trial, pool.cluster, pool.location, (pool.name,))
    return ran, took_s


async def _take_down(trial: Trial, cluster: str, location: str, names: tuple[str, ...]) -> None:
    """Delete these pools. GKE refuses while it still creates one, which may take as long as a stockout."""
    left: list[str] = []
    why = ""

    async def gone() -> bool | None:
        nonlocal why
        left[:] = [pool.name for pool in await trial.gcloud.pools(cluster, location) if pool.name in names]
        for name in left:
            try:
                await trial.gcloud.delete_pool(name, cluster, location)
            except UserError as error:
                why = f" ({error})"
        return True if not left else None

    if await trial.until(gone, trial.bounds.stockout_s) is None:
        raise UserError(f"cannot delete the pools {', '.join(left)} of {cluster}{why}; delete them in the console")


def _cluster_with(trial: Trial, zone: str) -> ClusterSpec | None:
    return next((cluster for cluster in trial.fleet.clusters if zone in cluster.zones), None)


def _understood(trial: Trial, ran: Ran) -> Outcome:
    """The outcome into which Tradewind translates Google's refusal."""
    project = trial.fleet.cloud.project
    if "finished with error" in ran.err:
        report = OperationReport(name="", location="", ended=True, error=Code.UNKNOWN, message=ran.err)
        return operation_outcome(report, project)
    code = _CODE.search(ran.err)
    return call_outcome(CallFailed(_CODES.get(int(code[1]) if code else 0, Code.FAILED_PRECONDITION), ran.err), project)


def _said(ran: Ran) -> str:
    return " ".join(ran.err.split())[:SAID_AT_MOST]

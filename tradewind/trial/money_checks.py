"""Checks of money: what the trial may cost, what it leaves behind, and whether ledger and bill agree."""

from datetime import datetime

from controlplane.catalog.accelerators import canonical
from controlplane.catalog.shipped import shipped_catalog
from controlplane.fleet.interpretation import offers
from messages.labels import JOB_LABEL
from tradewind.trial.stage import ENDED, Trial
from tradewind.trial.verdicts import Verdict, failed, passed, skipped

TOLERANCE = 0.05
TOLERANCE_USD = 0.05
CLUSTER_USD_PER_HOUR = 0.25
"""The approximate price of a cluster's fee and its system node."""
UNKNOWN_USD_PER_HOUR = 10.0
"""The assumed price of a machine that the catalog does not have."""


def worst_case_usd(trial: Trial, minutes: float) -> float:
    """The cost of the trial if all machines run on demand until the time is over."""
    dearest = max(_usd_per_hour(offer.zone, offer.machine_type, offer.accelerator) for offer in offers(trial.fleet))
    # One machine more than the job wants, because a replacement starts before the old machine ends.
    machines = dearest * (trial.spec.workers.max + 1) + CLUSTER_USD_PER_HOUR * len(trial.fleet.clusters)
    scarce = trial.scarce
    probe_h = min(minutes * 60, trial.bounds.stockout_s) / 3600
    return machines * minutes / 60 + _usd_per_hour(scarce.zone, scarce.machine_type, scarce.accelerator) * probe_h


def _usd_per_hour(zone: str, machine_type: str, accelerator: str | None) -> float:
    offer = shipped_catalog().find(zone, machine_type, canonical(accelerator))
    price = None if offer is None else offer.on_demand_micro_usd_per_hour
    return UNKNOWN_USD_PER_HOUR if price is None else price / 1e6


async def spent_usd(trial: Trial) -> float:
    """The cost of the trial's job in the ledger."""
    if await trial.view() is None:
        return 0.0
    return (await trial.api.cost(trial.spec.name)).micro_usd / 1e6


async def stop(trial: Trial) -> None:
    view = await trial.view()
    if view is not None and view.phase not in ENDED:
        trial.changes(f"tradewind stop {trial.spec.name}")
        await trial.api.stop(trial.spec.name)


async def leftovers(trial: Trial) -> Verdict:
    """Check that no machine, disk or pool of the job is left after its end."""
    await stop(trial)
    found: list[str] = []

    async def nothing() -> bool | None:
        found[:] = await _left(trial)
        return True if not found else None

    if await trial.until(nothing, trial.bounds.gone_s) is None:
        hint = "tradewind reap --fleet FLEET --yes"
        return failed(f"{', '.join(found)} left {trial.bounds.gone_s:g} s after the end of the job. Run: {hint}")
    return passed("no machine, no disk and no pool of the job is left")


async def _left(trial: Trial) -> list[str]:
    job = trial.spec.name
    pools = [
        pool.name
        for cluster in trial.fleet.clusters
        for pool in await trial.gcloud.pools(cluster.name, cluster.location)
        if pool.config.labels.get(JOB_LABEL) == job
    ]
    machines = [machine.name for machine in await trial.gcloud.machines(job)]
    disks = [disk.name for disk in await trial.gcloud.disks(job)]
    kinds = {"machine": machines, "disk": disks, "pool": pools}
    return [f"{kind} {name}" for kind, names in kinds.items() for name in names]


async def ledger(trial: Trial) -> Verdict:
    """Compare ledger and bill. The billing export comes hours later, so this check needs a second run."""
    if not trial.billing_table:
        return skipped("no billing export; give its table with --billing-table")
    view = await trial.view()
    if view is None:
        return skipped(f"the master does not know the job {trial.spec.name}: run the other checks first")
    cost = await trial.api.cost(trial.spec.name)
    ours = cost.nodes_micro_usd / 1e6
    billed = await trial.gcloud.billed(trial.billing_table, trial.spec.name, view.submitted_at)
    if billed.usd is None or billed.until is None:
        return skipped("the billing export does not have the job yet; it takes up to a day. Repeat with --only ledger")
    if _unix_s(billed.until) < cost.until - 3600:
        return skipped(f"the billing export ends at {billed.until}, before the job's end. Repeat with --only ledger")
    theirs = float(billed.usd)
    text = f"ledger {ours:.2f} USD, bill {theirs:.2f} USD for machines"
    if abs(ours - theirs) > max(TOLERANCE * theirs, TOLERANCE_USD):
        return failed(f"{text}: they differ by more than {TOLERANCE:.0%}")
    return passed(f"{text}: they differ by {abs(ours - theirs):.2f} USD")


def _unix_s(text: str) -> float:
    """The Unix time of a timestamp of BigQuery, which is in UTC with or without a zone."""
    try:
        return datetime.fromisoformat(text.replace(" UTC", "").rstrip("Z") + "+00:00").timestamp()
    except ValueError:
        return 0.0

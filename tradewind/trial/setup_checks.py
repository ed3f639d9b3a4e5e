"""Checks before money is spent: enabled APIs, quotas, and the roles of the nodes' account."""

from controlplane.allocator.offers import pool_plan
from controlplane.catalog.places import region_of
from controlplane.clouds.gke.fleet_file import gke_config
from controlplane.clouds.gke.quotas import needs
from controlplane.clouds.interface import PROJECT, Quota, QuotaKey
from controlplane.fleet.interpretation import complete, offers
from messages.ids import JobName
from tradewind.trial.stage import Trial
from tradewind.trial.verdicts import Verdict, failed, passed

SERVICES = (
    "artifactregistry.googleapis.com",
    "cloudbilling.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
)
ROLES = {
    "roles/container.defaultNodeServiceAccount": {"roles/container.nodeServiceAccount"},
    "roles/artifactregistry.reader": {"roles/artifactregistry.writer", "roles/artifactregistry.admin"},
}
"""The roles that a node needs, with other roles that contain them."""
BASIC = {"roles/editor", "roles/owner"}


async def services(trial: Trial) -> Verdict:
    missing = sorted(set(SERVICES) - await trial.gcloud.services())
    if missing:
        return failed(f"not enabled: {', '.join(missing)}. Run: gcloud services enable {' '.join(missing)}")
    return passed(f"{len(SERVICES)} of {len(SERVICES)} APIs are enabled")


async def quotas(trial: Trial) -> Verdict:
    """Check that the quotas have room for the trial's job in the first offer."""
    offer = offers(trial.fleet)[0]
    region, nodes = region_of(offer.zone), trial.spec.workers.max
    known = await quotas_of(trial, region)
    plan = complete(trial.fleet, pool_plan(JobName(trial.spec.name), offer, nodes), {})
    needed = {key: amount * nodes for key, amount in needs(plan, known, gke_config(trial.fleet)).items()}
    free = {quota.key: quota.limit - quota.usage for quota in known}
    short = [
        f"{key.metric} ({key.scope}): {amount:g} needed, {free[key]:g} free"
        for key, amount in needed.items()
        if free[key] < amount
    ]
    if short:
        return failed(f"{'; '.join(short)}. Request more quota, or use smaller disks or fewer workers")
    room = ", ".join(f"{key.metric} {amount:g} of {free[key]:g}" for key, amount in sorted(needed.items(), key=str))
    return passed(f"{nodes} × {offer.machine_type} in {region} need {room}")


async def quotas_of(trial: Trial, region: str) -> list[Quota]:
    """Quotas of the region and of the project."""
    scopes = {region: await trial.gcloud.region_quotas(region), PROJECT: await trial.gcloud.project_quotas()}
    return [
        Quota(QuotaKey(scope, line.metric), line.limit, line.usage) for scope, lines in scopes.items() for line in lines
    ]


async def node_account(trial: Trial) -> Verdict:
    account = trial.fleet.nodes.service_account or await trial.gcloud.default_account()
    granted = await trial.gcloud.roles_of(account)
    missing = [role for role, others in ROLES.items() if not granted & ({role} | others | BASIC)]
    if missing:
        project = trial.fleet.cloud.project
        commands = "; ".join(
            f"gcloud projects add-iam-policy-binding {project} --member=serviceAccount:{account} --role={role}"
            for role in missing
        )
        return failed(f"{account} lacks {', '.join(missing)}. Run: {commands}")
    return passed(f"{account} has {', '.join(sorted(granted))}")

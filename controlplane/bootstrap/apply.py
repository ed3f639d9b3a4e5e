"""Installing and removing, one pass each. A pass that was cut short does no harm: the next one begins anew."""

from collections.abc import Sequence

from controlplane.bootstrap.answers import PassOutcome, outcome_of
from controlplane.bootstrap.client import CallFailed, KubernetesClient
from controlplane.bootstrap.names import Manifest, title
from controlplane.bootstrap.ownership import Step, is_to_be_removed, to_install
from controlplane.clouds.outcomes import Done


async def install(client: KubernetesClient, wanted: Sequence[Manifest], fleet: str, cluster: str) -> PassOutcome:
    """In the order of `wanted`; stops at the first that cannot be had."""
    for manifest in wanted:
        try:
            step = to_install(manifest, await client.find(manifest), fleet, cluster)
            if not isinstance(step, Step):
                return step
            if step is Step.APPLY:
                await client.apply(manifest)
        except CallFailed as failed:
            return outcome_of(failed.complaint, f"install the {title(manifest)}", cluster)
    return Done()


async def remove(client: KubernetesClient, wanted: Sequence[Manifest], fleet: str, cluster: str) -> PassOutcome:
    """What we made, the last first. Deletions are asked for, not waited for."""
    for manifest in reversed(wanted):
        try:
            found = await client.find(manifest)
            if found is not None and is_to_be_removed(found, fleet):
                await client.delete(found)
        except CallFailed as failed:
            return outcome_of(failed.complaint, f"remove the {title(manifest)}", cluster)
    return Done()

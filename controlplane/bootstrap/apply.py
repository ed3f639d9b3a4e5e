"""One pass of installing. One that was cut short does no harm: the next begins anew."""

from collections.abc import Sequence

from controlplane.bootstrap.answers import PassOutcome, outcome_of
from controlplane.bootstrap.client import CallFailed, KubernetesClient
from controlplane.bootstrap.names import Manifest, title
from controlplane.bootstrap.ownership import Step, to_install
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

"""Every cluster of the fleet gets what it needs, and after a restart of the master what is there is taken over."""

import asyncio
from collections.abc import Callable
from typing import Protocol, assert_never

from controlplane.bootstrap.answers import PassOutcome, outcome_of
from controlplane.bootstrap.apply import install
from controlplane.bootstrap.client import CallFailed, connected
from controlplane.bootstrap.manifests import manifests
from controlplane.bootstrap.pods import controller_failure
from controlplane.bootstrap.settings import BootstrapSettings, Place, Secrets
from controlplane.clouds.interface import KubernetesAccess
from controlplane.clouds.outcomes import Busy, Done, Refused, Throttled, Unreachable
from messages.clusters import StartFailure
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.errors import Temporary, UserError
from runtime.logs import logger

Report = Callable[[Place, PassOutcome], None]


class Access(Protocol):
    """The part of a cloud that the bootstrap needs."""

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused: ...

    async def access_token(self) -> str: ...


class Bootstrap:
    def __init__(
        self,
        cloud: Access,
        settings: BootstrapSettings,
        secrets: Secrets,
        report: Report = lambda place, outcome: None,
    ) -> None:
        """`report` is told each time that a cluster stands otherwise than before."""
        self._cloud = cloud
        self._settings = settings
        self._secrets = secrets
        self._report = report
        self._log = logger()

    async def install_until_done(self, place: Place) -> None:
        """Until it is done or cancelled. What a person has to correct is tried again too, seldom."""
        before: PassOutcome | None = None
        for pause_s in pauses(self._settings.pause_first_s, self._settings.pause_most_s):
            outcome = await self.install(place)
            if outcome != before:
                self._tell(place, outcome)
            if isinstance(outcome, Done):
                return
            before = outcome
            await asyncio.sleep(self._settings.pause_most_s if isinstance(outcome, Refused) else pause_s)

    async def install(self, place: Place) -> PassOutcome:
        """One pass. Installing what is there already changes nothing."""
        cluster = place.cluster
        wanted = manifests(self._settings, self._secrets, place)
        try:
            access = await self._cloud.kubernetes_access(cluster)
            if not isinstance(access, KubernetesAccess):
                return access
            async with connected(access, self._cloud.access_token, self._settings.call_s) as client:
                return await install(client, wanted, self._settings.fleet, cluster)
        except CallFailed as failed:
            return outcome_of(failed.complaint, "begin", cluster)
        except Temporary as error:
            return Unreachable(str(error))
        except UserError as error:
            return Refused(str(error), error.hint)

    async def controller_failure(self, cluster: ClusterName) -> StartFailure | None:
        """Why the controller's pod cannot start; None if it can, or if the API does not answer."""
        try:
            access = await self._cloud.kubernetes_access(cluster)
            if not isinstance(access, KubernetesAccess):
                return None
            async with connected(access, self._cloud.access_token, self._settings.call_s) as client:
                return await controller_failure(client, self._settings.namespace)
        except (CallFailed, Temporary, UserError) as error:
            self._log.warning("controller_not_looked_at", cluster=cluster, why=str(error))
            return None

    def _tell(self, place: Place, outcome: PassOutcome) -> None:
        match outcome:
            case Done():
                self._log.info("bootstrap_done", cluster=place.cluster)
            case Busy(detail) | Throttled(detail) | Unreachable(detail):
                self._log.warning("bootstrap_waits", cluster=place.cluster, why=detail)
            case Refused(detail, hint):
                self._log.error("bootstrap_refused", cluster=place.cluster, why=detail, hint=hint)
            case _:
                assert_never(outcome)
        self._report(place, outcome)

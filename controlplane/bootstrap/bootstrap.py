"""The installer of what workers need in each cluster of the fleet. A second installation changes nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, assert_never

import msgspec

from controlplane.bootstrap.manifests import manifests
from controlplane.bootstrap.names import CONTROLLER, selector, title
from controlplane.bootstrap.outcomes import PassOutcome, Step, decide_step, outcome_of
from controlplane.bootstrap.settings import BootstrapSettings, Place, Secrets
from controlplane.clouds.interface import KubernetesAccess
from controlplane.clouds.outcomes import Busy, Done, Refused, Throttled, Unreachable
from messages.clusters import BAD_IMAGES, PULL_FAILURES, StartFailure
from messages.decoding import Undecodable, decode
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.errors import Temporary, TradewindError, UserError
from runtime.kubernetes.client import ApiRefused, ApiUnavailable, KubernetesApi, NotFound
from runtime.kubernetes.configuration import connected, from_endpoint
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.paths import Manifest, path_of, pods_path
from runtime.logs import logger

FIELD_MANAGER = "tradewind-bootstrap"

Report = Callable[[Place, PassOutcome], None]


class Access(Protocol):
    """The part of a cloud that the bootstrap needs."""

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused: ...

    async def access_token(self, cluster: ClusterName) -> str: ...


class Bootstrap:
    def __init__(
        self,
        cloud: Access,
        settings: BootstrapSettings,
        secrets: Secrets,
        report: Report = lambda place, outcome: None,
    ) -> None:
        """`report` is called each time that the outcome of a cluster changes."""
        self._cloud = cloud
        self._settings = settings
        self._secrets = secrets
        self._report = report
        self._log = logger()

    async def install_until_done(self, place: Place) -> None:
        """Retry until the installation is done or cancelled. Refusals are retried at the longest interval."""
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
        """Try to install once. Installing an existing object again changes nothing."""
        cluster = place.cluster
        wanted = manifests(self._settings, self._secrets, place)
        try:
            access = await self._cloud.kubernetes_access(cluster)
            if not isinstance(access, KubernetesAccess):
                return access
            async with self._connected(cluster, access) as api:
                return await install(api, wanted, self._settings.fleet, cluster)
        except (ApiUnavailable, ApiRefused) as error:
            return outcome_of(error, "start the installation", cluster)
        except Temporary as error:
            return Unreachable(str(error))
        except UserError as error:
            return Refused(str(error), error.hint)

    async def controller_failure(self, cluster: ClusterName) -> StartFailure | None:
        """Return why the controller's pod cannot start; None if it can, or if the API does not answer."""
        try:
            access = await self._cloud.kubernetes_access(cluster)
            if not isinstance(access, KubernetesAccess):
                return None
            async with self._connected(cluster, access) as api:
                return await controller_failure(api, self._settings.namespace)
        except TradewindError as error:
            self._log.warning("controller_not_read", cluster=cluster, why=str(error))
            return None

    @contextlib.asynccontextmanager
    async def _connected(self, cluster: ClusterName, access: KubernetesAccess) -> AsyncIterator[KubernetesApi]:
        configuration = from_endpoint(
            access.endpoint, partial(self._cloud.access_token, cluster), access.ca_certificate
        )
        async with connected(configuration, FIELD_MANAGER, self._settings.call_s) as api:
            yield api

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


async def install(api: KubernetesApi, wanted: Sequence[Manifest], fleet: str, cluster: str) -> PassOutcome:
    """Install in the order of `wanted` and stop at the first failure. The next attempt starts from the beginning."""
    for manifest in wanted:
        try:
            step = decide_step(manifest, await find(api, manifest), fleet, cluster)
            if not isinstance(step, Step):
                return step
            if step is Step.APPLY:
                await api.apply(path_of(manifest), manifest, FIELD_MANAGER)
        except (ApiUnavailable, ApiRefused) as error:
            return outcome_of(error, f"install the {title(manifest)}", cluster)
    return Done()


async def find(api: KubernetesApi, manifest: Manifest) -> Manifest | None:
    """Read the current object with the manifest's kind and name; None if there is none."""
    try:
        return decode(await api.get(path_of(manifest)), dict[str, Any])
    except NotFound:
        return None
    except Undecodable as error:
        raise ApiUnavailable(f"cannot decode the answer: {error}") from error


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...] = ()


async def controller_failure(api: KubernetesApi, namespace: str) -> StartFailure | None:
    """Return why the controller's pod cannot start; None if it can, or if the answer is invalid."""
    labels = ",".join(f"{name}={value}" for name, value in selector(CONTROLLER).items())
    try:
        pods = decode(await api.get(pods_path(namespace), {"labelSelector": labels}), _Pods)
    except Undecodable:
        return None
    return next((failure for pod in pods.items for failure in _failures(pod)), None)


def _failures(pod: Pod) -> Iterator[StartFailure]:
    for container in pod.status.container_statuses or ():
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in BAD_IMAGES | PULL_FAILURES:
            yield StartFailure(waiting.reason, waiting.message or "", container.image, pod.spec.node_name or "")

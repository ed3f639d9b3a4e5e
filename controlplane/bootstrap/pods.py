"""Whether a pod of ours can start in a cluster, as its containers say."""

from collections.abc import Iterator

import msgspec

from controlplane.bootstrap.client import KubernetesClient
from controlplane.bootstrap.names import CONTROLLER, selector
from messages.clusters import StartFailure

START_FAILURES = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


class _Waiting(msgspec.Struct, frozen=True):
    reason: str | None = None
    message: str | None = None


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None


class _Container(msgspec.Struct, frozen=True):
    image: str = ""
    state: _State = _State()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    container_statuses: tuple[_Container, ...] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


async def controller_failure(client: KubernetesClient, namespace: str) -> StartFailure | None:
    """Raises `CallFailed`. None as well where what is there cannot be read."""
    labels = ",".join(f"{name}={value}" for name, value in selector(CONTROLLER).items())
    try:
        pods = msgspec.convert(await client.pods(namespace, labels), _Pods)
    except msgspec.ValidationError:
        return None
    return next((failure for pod in pods.items for failure in _failures(pod)), None)


def _failures(pod: _Pod) -> Iterator[StartFailure]:
    for container in pod.status.container_statuses or ():
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in START_FAILURES:
            yield StartFailure(waiting.reason, waiting.message or "", container.image, pod.spec.node_name or "")

"""An API server with nothing behind it, and hands that play what is missing: scheduler, kubelet, cloud."""

import contextlib
import secrets
from datetime import UTC, datetime
from typing import Any

import msgspec

from agents.cluster.kubernetes.observations import ZONE_LABEL
from messages.ids import JobName
from messages.labels import JOB_LABEL, NOTICE_ANNOTATION, POOL_LABEL
from runtime.kubernetes.client import AlreadyExists, KubernetesApi, NotFound
from runtime.kubernetes.objects import Listing, Pod
from runtime.kubernetes.paths import NODES_PATH, pods_path
from tests.conftest import eventual_answer

JOB = JobName("story")
WORKER_ACCOUNT = "worker"
WITHIN_S = 20.0


class Ground:
    def __init__(self, api: KubernetesApi) -> None:
        self.api = api
        self.namespace = f"tradewind-test-{secrets.token_hex(4)}"
        self._mark = secrets.token_hex(3)
        """Nodes belong to no namespace: others may be testing here too."""
        self._nodes: set[str] = set()

    @property
    def pods_path(self) -> str:
        return pods_path(self.namespace)

    async def prepare(self) -> None:
        await self.api.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        account = {"metadata": {"name": WORKER_ACCOUNT}, "automountServiceAccountToken": False}
        await self.api.create(f"/api/v1/namespaces/{self.namespace}/serviceaccounts", account)

    async def clean(self) -> None:
        """Does not wait for the end of the namespace: no controller here empties it."""
        for name in await self.pods():
            await self.kill(name)
        for node in tuple(self._nodes):
            await self.remove_node(node)
        with contextlib.suppress(NotFound):
            await self.api.delete(f"/api/v1/namespaces/{self.namespace}")

    def named(self, node: str) -> str:
        return f"{node}-{self._mark}"

    async def node(
        self,
        short: str,
        *,
        job: str = JOB,
        pool: str = "p1",
        zone: str = "z1",
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
    ) -> str:
        """A node that is ready, under its full name; `labels` replace those of its pool."""
        name = self.named(short)
        own = {POOL_LABEL: pool} if labels is None else labels
        body = {
            "metadata": {
                "name": name,
                "labels": {JOB_LABEL: job, ZONE_LABEL: zone, **own},
                "annotations": annotations or {},
            },
            "status": {"conditions": [_ready("True", "KubeletReady", "kubelet is posting ready status")]},
        }
        with contextlib.suppress(AlreadyExists):
            await self.api.create(NODES_PATH, body)
        self._nodes.add(name)
        await self.set_ready(name, "True", "KubeletReady", "kubelet is posting ready status")
        return name

    async def set_ready(self, node: str, status: str, reason: str, message: str) -> None:
        body = {"status": {"conditions": [_ready(status, reason, message)]}}
        await self.api.patch(f"{NODES_PATH}/{node}/status", body)

    async def annotate(self, node: str, annotations: dict[str, str | None]) -> None:
        await self.api.patch(f"{NODES_PATH}/{node}", {"metadata": {"annotations": annotations}})

    async def notice(self, node: str, deadline_unix_s: float) -> None:
        await self.annotate(node, {NOTICE_ANNOTATION: f"{deadline_unix_s:.3f}"})

    async def annotations(self, node: str) -> dict[str, str]:
        found: dict[str, Any] = msgspec.json.decode(await self.api.get(f"{NODES_PATH}/{node}"))
        return dict(found["metadata"].get("annotations") or {})

    async def remove_node(self, node: str) -> None:
        self._nodes.discard(node)
        with contextlib.suppress(NotFound):
            await self.api.delete(f"{NODES_PATH}/{node}")

    async def pods(self) -> dict[str, Pod]:
        listing = msgspec.json.decode(await self.api.get(self.pods_path), type=Listing)
        found = [msgspec.json.decode(raw, type=Pod) for raw in listing.items or ()]
        return {pod.metadata.name: pod for pod in found}

    async def manifest(self, pod: str) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(await self.api.get(f"{self.pods_path}/{pod}"))
        return found

    async def until_pods(self, count: int, *, besides: set[str] | frozenset[str] = frozenset()) -> list[str]:
        """Names of those that are not being deleted and are not among the others."""

        async def found() -> list[str]:
            pods = await self.pods()
            return [
                name for name, pod in pods.items() if name not in besides and pod.metadata.deletion_timestamp is None
            ]

        async def enough() -> bool:
            return len(await found()) == count

        await eventual_answer(enough, what=f"{count} pods")
        return sorted(await found())

    async def bind(self, pod: str, node: str) -> None:
        """Binds a pod to a node, as a scheduler does."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.api.create(f"{self.pods_path}/{pod}/binding", body)

    async def unschedulable(self, pod: str, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        await self._set_status(pod, {"phase": "Pending", "conditions": [condition]})

    async def run(self, pod: str, node: str) -> None:
        """Places a pod and starts its agent, as scheduler and kubelet do."""
        await self.bind(pod, node)
        await self.set_running(pod)

    async def set_running(self, pod: str) -> None:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _now()}
        containers = [_container(name, {"running": {"startedAt": _now()}}) for name in ("agent", "host")]
        status = {"phase": "Running", "conditions": [scheduled], "containerStatuses": containers, "startTime": _now()}
        await self._set_status(pod, status)

    async def exit(self, pod: str, code: int, message: str = "") -> None:
        """All its containers end."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
        containers = [_container(name, {"terminated": ended}) for name in ("agent", "host")]
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": containers}
        await self._set_status(pod, status)

    async def fail_pull(self, pod: str, node: str, message: str) -> None:
        """Places a pod and starts its agent, but the image of its host cannot be pulled."""
        await self.bind(pod, node)
        containers = [
            _container("agent", {"running": {"startedAt": _now()}}),
            _container("host", {"waiting": {"reason": "ErrImagePull", "message": message}}),
        ]
        await self._set_status(pod, {"phase": "Pending", "containerStatuses": containers})

    async def lose_agent(self, pod: str, code: int) -> None:
        """Only the agent ends."""
        containers = [
            _container("agent", {"terminated": {"exitCode": code, "reason": "Error"}}),
            _container("host", {"running": {"startedAt": _now()}}),
        ]
        await self._set_status(pod, {"phase": "Running", "containerStatuses": containers})

    async def lose_host(self, pod: str, code: int, message: str = "") -> None:
        """Only the host ends."""
        ended = {"exitCode": code, "reason": "Error", "message": message}
        containers = [
            _container("agent", {"running": {"startedAt": _now()}}),
            _container("host", {"terminated": ended}),
        ]
        await self._set_status(pod, {"phase": "Running", "containerStatuses": containers})

    async def kill(self, pod: str) -> None:
        """From the API, as a kubelet does at the end of a deletion."""
        with contextlib.suppress(NotFound):
            await self.api.delete(f"{self.pods_path}/{pod}", grace_s=0)

    async def _set_status(self, pod: str, status: dict[str, Any]) -> None:
        await self.api.patch(f"{self.pods_path}/{pod}/status", {"status": status})


def _ready(status: str, reason: str, message: str) -> dict[str, str]:
    now = _now()
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {**condition, "lastHeartbeatTime": now, "lastTransitionTime": now}


def _container(name: str, state: dict[str, Any]) -> dict[str, Any]:
    running = "running" in state
    return {"name": name, "image": "test", "imageID": "", "ready": running, "restartCount": 0, "state": state}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

"""Settings with defaults for everything that a test does not set."""

from collections.abc import Iterator
from typing import Any

from controlplane.bootstrap.manifests import manifests
from controlplane.bootstrap.settings import BootstrapSettings, Place, Secrets
from messages.ids import ClusterName
from runtime.kubernetes.paths import Manifest

CLUSTER = ClusterName("tw-us-central1")
IMAGE = "example.invalid/tradewind:1"


def some_settings(**changes: Any) -> BootstrapSettings:
    given: dict[str, Any] = {"fleet": "research", "image": IMAGE, "pause_first_s": 0.01, "pause_most_s": 0.05}
    return BootstrapSettings(**given | changes)


def some_secrets(**changes: str) -> Secrets:
    given = {"nats_url": "nats://bus:password@10.0.0.5:4222", "nats_credentials": "a seed"}
    return Secrets(**given | changes)


def a_place(region: str = "us-central1") -> Place:
    return Place(CLUSTER, region, "gke")


def some_manifests(secrets: Secrets | None = None, **changes: Any) -> tuple[Manifest, ...]:
    return manifests(some_settings(**changes), secrets or some_secrets(), a_place())


def one(found: tuple[Manifest, ...], kind: str, name: str = "") -> Manifest:
    (only,) = [each for each in found if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return only


def container_of(workload: Manifest) -> Manifest:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    found: Manifest = only
    return found


def env_of(workload: Manifest) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container_of(workload)["env"]}


def texts(value: Any) -> Iterator[str]:
    """All strings in a manifest."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)

"""From settings to everything that a cluster needs, as plain dicts in the order in which it is installed."""

import base64
import hashlib

import msgspec

from controlplane.bootstrap import rights, workloads
from controlplane.bootstrap.names import BUS_SECRET, Manifest, labels
from controlplane.bootstrap.settings import BootstrapSettings, Place, Secrets
from messages.labels import NATS_CREDENTIALS_KEY, NATS_URL_KEY


def manifests(settings: BootstrapSettings, secrets: Secrets, place: Place) -> tuple[Manifest, ...]:
    """Each needs only what comes before it; the namespace is first."""
    fleet, namespace = settings.fleet, settings.namespace
    kept = _secrets(settings, secrets)
    digest = hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()[:16]
    return (
        _namespace(fleet, namespace),
        *rights.accounts(fleet, namespace),
        *rights.roles(fleet, namespace),
        *rights.bindings(fleet, namespace),
        *kept,
        workloads.controller(settings, place, digest, has_credentials=bool(secrets.nats_credentials)),
        workloads.notice(settings, place, digest),
    )


def _namespace(fleet: str, namespace: str) -> Manifest:
    # The network of the node, which the notice needs, is not allowed to pods where a cluster asks for more by default.
    admission = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "labels": {**labels(fleet, "namespace"), **admission}},
    }


def _secrets(settings: BootstrapSettings, secrets: Secrets) -> list[Manifest]:
    bus = {NATS_URL_KEY: secrets.nats_url}
    if secrets.nats_credentials:
        bus[NATS_CREDENTIALS_KEY] = secrets.nats_credentials
    return [_secret(settings, BUS_SECRET, bus)]


def _secret(settings: BootstrapSettings, name: str, values: dict[str, str]) -> Manifest:
    """As `data`, not `stringData`, which nobody could apply a second time with the same result."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "namespace": settings.namespace, "labels": labels(settings.fleet, name)},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }

"""The objects that a fleet installs in one namespace of a server, and the objects that exist there."""

from typing import Any

from controlplane.bootstrap.bootstrap import find, install
from controlplane.bootstrap.names import title
from controlplane.bootstrap.outcomes import PassOutcome
from controlplane.bootstrap.settings import Secrets
from runtime.kubernetes.paths import Manifest
from tests.bootstrap.builders import CLUSTER, one, some_manifests
from tests.bootstrap.servers import Server

FLEET = "research"


class Installation:
    """What one fleet installs in the namespace of the test."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def manifests(self, secrets: Secrets | None = None, **changes: Any) -> tuple[Manifest, ...]:
        return some_manifests(secrets, **{"namespace": self.server.namespace, "fleet": FLEET} | changes)

    def wanted(self, kind: str, name: str = "") -> Manifest:
        return one(self.manifests(), kind, name)

    async def install(self, secrets: Secrets | None = None, **changes: Any) -> PassOutcome:
        fleet = changes.get("fleet", FLEET)
        return await install(self.server.client, self.manifests(secrets, **changes), fleet, CLUSTER)

    async def delete_all(self) -> None:
        """Request the deletion of the objects of any owner without waiting for it."""
        for manifest in reversed(self.manifests()):
            found = await find(self.server.client, manifest)
            if found is not None and "deletionTimestamp" not in found["metadata"]:
                await self.server.delete(found)

    async def versions(self) -> dict[str, tuple[str, str]]:
        found = [await self.server.read(manifest) for manifest in self.manifests()]
        return {title(each): (each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in found}

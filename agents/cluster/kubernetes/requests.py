"""Requests about pods that are made until they are answered: a few at a time, with growing pauses."""

import asyncio
from collections.abc import Callable

from messages.decoding import Undecodable, decode
from runtime.backoff import Backoff
from runtime.kubernetes.client import AlreadyExists, ApiRefused, ApiUnavailable, KubernetesApi, NotFound
from runtime.kubernetes.objects import AnyObject
from runtime.kubernetes.paths import Manifest, pods_path
from runtime.logs import Once, logger

AT_ONCE = 16


class PodRequests:
    def __init__(self, api: KubernetesApi, namespace: str) -> None:
        self._api = api
        self._path = pods_path(namespace)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._log = logger(namespace=namespace)
        self._log_once = Once()

    async def create(self, manifest: Manifest, is_needless: Callable[[], bool]) -> str | None:
        """The uid of the pod, empty if it was there already; None if it was needless by the time. Raises ApiRefused."""
        backoff = Backoff()
        while not is_needless():
            try:
                async with self._room:
                    created = await self._api.create(self._path, manifest)
                return decode(created, AnyObject).metadata.uid
            except AlreadyExists:
                return ""
            except Undecodable as error:
                if self._log_once(str(error)):
                    self._log.warning("pod_answer_unreadable", pod=manifest["metadata"]["name"], why=str(error))
                await backoff.wait()
            except ApiUnavailable as error:
                if self._log_once(str(error)):
                    self._log.warning("pod_not_created_yet", pod=manifest["metadata"]["name"], why=str(error))
                await backoff.wait(error.retry_after_s)
        return None

    async def delete(self, pod: str, grace_s: int, uid: str = "") -> None:
        """Raises NotFound. With `uid` only that very pod."""
        backoff = Backoff()
        while True:
            try:
                async with self._room:
                    await self._api.delete(f"{self._path}/{pod}", grace_s=grace_s, uid=uid)
            except NotFound:
                raise
            except ApiRefused as error:
                self._log.warning("pod_not_deleted", pod=pod, why=str(error))
            except ApiUnavailable as error:
                await backoff.wait(error.retry_after_s)
                continue
            return

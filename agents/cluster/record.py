"""What the controller knows, in KV under one key with one writer: whoever wrote last is the controller."""

from agents.cluster.state import Known
from messages.decoding import Undecodable, Unreadable, decode, encode_readable
from messages.ids import ClusterName
from messages.subjects import known_key
from runtime.bus import Bucket
from runtime.errors import BusRefused, BusUnavailable, Conflict, UserError
from runtime.logs import logger


class NotSaved(Exception):
    """Nobody else is known to have written; it can be tried again."""


class KnownRecord:
    def __init__(self, bucket: Bucket, cluster: ClusterName, incarnation: str) -> None:
        self._bucket = bucket
        self._cluster = cluster
        self._key = known_key(cluster)
        self._incarnation = incarnation
        self._revision = 0

    async def load(self) -> Known | None:
        entry = await self._bucket.get(self._key)
        if entry is None:
            return None
        self._revision = entry.revision
        return self._decoded(entry.value)

    async def is_lost(self) -> bool:
        """It was written or read here, and is no longer there. Raises `BusUnavailable`."""
        return self._revision > 0 and await self._bucket.get(self._key) is None

    async def save(self, known: Known) -> None:
        """Raises `NotSaved`, or a `UserError` if another controller has taken over."""
        try:
            value = encode_readable(known, Known, sort_keys=True)
            self._revision = await self._bucket.update(self._key, value, self._revision)
        except Conflict:
            await self._look_who_wrote()
            raise NotSaved("an earlier save was written, but its acknowledgement was lost") from None
        except (BusUnavailable, BusRefused, Unreadable) as error:
            raise NotSaved(str(error)) from error

    async def _look_who_wrote(self) -> None:
        try:
            entry = await self._bucket.get(self._key)
        except BusUnavailable as error:
            raise NotSaved(str(error)) from error
        if entry is None:
            self._revision = 0
            return
        known = self._decoded(entry.value)
        if known is not None and known.incarnation != self._incarnation:
            raise taken_over(self._cluster)
        self._revision = entry.revision

    def _decoded(self, value: bytes) -> Known | None:
        try:
            return decode(value, Known)
        except Undecodable as error:
            logger(cluster=self._cluster).warning("known_unreadable", key=self._key, why=str(error))
            return None


def taken_over(cluster: ClusterName) -> UserError:
    return UserError(
        f"Another cluster-controller of cluster {cluster!r} is running",
        "stop it first, or start this one with another --cluster",
    )

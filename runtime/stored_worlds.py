"""Worlds that are stored outside of their job's record, as immutable chunks under keys with their digests."""

from collections.abc import Mapping

from messages import subjects
from messages.compact_worlds import World, WorldReference, from_chunks
from messages.ids import JobName
from runtime.kv import Bucket


async def write_chunks(bucket: Bucket, chunks: Mapping[str, bytes]) -> None:
    """Stores chunks; idempotent. Raises `BusUnavailable`."""
    for key, chunk in chunks.items():
        await bucket.put(key, chunk)


async def read_chunks(bucket: Bucket, job: JobName, reference: WorldReference) -> World | None:
    """Reads a world; None if a chunk is gone, after a newer world. Raises `BusUnavailable`, `Undecodable`."""
    chunks: list[bytes] = []
    for key in subjects.world_chunk_keys(job, reference):
        entry = await bucket.get(key)
        if entry is None:
            return None
        chunks.append(entry.value)
    return from_chunks(chunks, reference) if chunks else None

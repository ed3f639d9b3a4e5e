"""Streams: created idempotently, limited in bytes and age; the oldest messages are removed first."""

import contextlib
import functools
import time
from collections.abc import Sequence

import nats.js.errors
from nats.js import api

from runtime.link import Link
from runtime.logs import logger

_NAME_IN_USE = 10058
_NANOSECONDS_PER_MS = 1_000_000
_DUPLICATE_WINDOW_S = 120.0


async def ensure(link: Link, config: api.StreamConfig, timeout_s: float) -> None:
    """Creates the stream, or gives an existing one this configuration."""
    link.streams[str(config.name)] = config
    action = f"making stream {config.name}"
    await link.call(action, lambda: make(link, config), timeout_s=timeout_s, harmless_twice=True)


async def make(link: Link, config: api.StreamConfig) -> None:
    """Creates a stream whose sequence begins at the current time, above that of a lost stream of this name.

    So a write that compares with a revision of the lost stream fails, and fencing by the highest known revision
    continues to work.
    """
    try:
        await link.jetstream.add_stream(config.evolve(first_seq=time.time_ns() // _NANOSECONDS_PER_MS))
    except nats.js.errors.BadRequestError as error:
        if error.err_code != _NAME_IN_USE:
            raise
        await link.jetstream.update_stream(config)


async def look(link: Link, name: str) -> api.StreamInfo:
    """Reads the state of a stream. Makes it again if this process made it and the server has lost it."""
    try:
        return await link.jetstream.stream_info(name)
    except nats.js.errors.NotFoundError:
        if name not in link.streams:
            raise
        await make(link, link.streams[name])
        logger(stream=name).warning("stream_made_again", why="the server has lost it")
        return await link.jetstream.stream_info(name)


async def purge(link: Link, name: str, subject: str, timeout_s: float) -> None:
    """Removes all stored messages of the subject."""

    async def ask() -> None:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await link.jetstream.purge_stream(name, subject=subject)

    action = f"removing {subject} from stream {name}"
    await link.call(action, ask, timeout_s=timeout_s, harmless_twice=True)


async def make_lost_streams(link: Link, timeout_s: float) -> None:
    for name in tuple(link.streams):
        action = f"looking whether stream {name} is there"
        await link.call(action, functools.partial(look, link, name), timeout_s=timeout_s, harmless_twice=True)


def log_config(name: str, subjects: Sequence[str], max_bytes: int, max_age_s: float) -> api.StreamConfig:
    return api.StreamConfig(
        name=name,
        subjects=list(subjects),
        storage=api.StorageType.FILE,
        retention=api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.OLD,
        max_bytes=max_bytes,
        max_age=max_age_s,
        duplicate_window=min(_DUPLICATE_WINDOW_S, max_age_s),
        num_replicas=1,
    )

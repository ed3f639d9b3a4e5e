"""Streams that remember: made idempotently, capped by bytes and age, the oldest forgotten first."""

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
    """The stream exists afterwards with this configuration, whether or not it existed before."""
    link.streams[str(config.name)] = config
    doing = f"making stream {config.name}"
    await link.call(doing, lambda: make(link, config), timeout_s=timeout_s, harmless_twice=True)


async def make(link: Link, config: api.StreamConfig) -> None:
    """Its numbers begin at the time of day, above all those of a stream of this name that the server has lost.

    So no write that compares with a number of the lost one comes through by chance, and whatever is fenced by the
    highest number that was seen goes on.
    """
    try:
        await link.jetstream.add_stream(config.evolve(first_seq=time.time_ns() // _NANOSECONDS_PER_MS))
    except nats.js.errors.BadRequestError as error:
        if error.err_code != _NAME_IN_USE:
            raise
        await link.jetstream.update_stream(config)


async def look(link: Link, name: str) -> api.StreamInfo:
    """At a stream, which is made again if the server has lost it and it was made here."""
    try:
        return await link.jetstream.stream_info(name)
    except nats.js.errors.NotFoundError:
        if name not in link.streams:
            raise
        await make(link, link.streams[name])
        logger(stream=name).warning("stream_made_again", why="the server has lost it")
        return await link.jetstream.stream_info(name)


async def purge(link: Link, name: str, subject: str, timeout_s: float) -> None:
    """Nothing of the subject that was stored before is left."""

    async def ask() -> None:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await link.jetstream.purge_stream(name, subject=subject)

    doing = f"removing {subject} from stream {name}"
    await link.call(doing, ask, timeout_s=timeout_s, harmless_twice=True)


async def make_lost_ones(link: Link, timeout_s: float) -> None:
    for name in tuple(link.streams):
        doing = f"looking whether stream {name} is there"
        await link.call(doing, functools.partial(look, link, name), timeout_s=timeout_s, harmless_twice=True)


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

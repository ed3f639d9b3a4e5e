"""Streams that remember: made idempotently, capped by bytes and age, the oldest forgotten first."""

from collections.abc import Sequence

import nats.js.errors
from nats.js import api

from runtime.link import Link

_NAME_IN_USE = 10058
_DUPLICATE_WINDOW_S = 120.0


async def ensure(link: Link, config: api.StreamConfig, timeout_s: float) -> None:
    """The stream exists afterwards with this configuration, whether or not it existed before."""
    link.streams[str(config.name)] = config
    doing = f"making stream {config.name}"
    await link.call(doing, lambda: make(link, config), timeout_s=timeout_s, harmless_twice=True)


async def make(link: Link, config: api.StreamConfig) -> None:
    try:
        await link.jetstream.add_stream(config)
    except nats.js.errors.BadRequestError as error:
        if error.err_code != _NAME_IN_USE:
            raise
        await link.jetstream.update_stream(config)


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

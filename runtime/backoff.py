"""Pauses between tries: they grow from the first to the longest, and stay there."""

from collections.abc import Iterator


def pauses(first_s: float, most_s: float, growth: float = 2.0) -> Iterator[float]:
    pause_s = min(first_s, most_s)
    while True:
        yield pause_s
        pause_s = min(pause_s * growth, most_s)

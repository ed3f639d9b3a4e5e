"""Pauses between tries."""

from collections.abc import Iterator

GROWTH = 1.5


def pauses(first_s: float, most_s: float) -> Iterator[float]:
    pause_s = first_s
    while True:
        yield min(pause_s, most_s)
        pause_s *= GROWTH if pause_s < most_s else 1.0

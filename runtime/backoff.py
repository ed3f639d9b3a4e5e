"""Pauses after failed attempts: they grow from the first to the longest, and stay there.

Pure, so that cores can use them. Without jitter; `runtime.retry.Backoff` adds jitter, and waits.
"""

from collections.abc import Iterator


def pauses(first_s: float, most_s: float, growth: float = 2.0) -> Iterator[float]:
    pause_s = min(first_s, most_s)
    while True:
        yield pause_s
        pause_s = min(pause_s * growth, most_s)


def pause_after(failures: int, first_s: float, most_s: float) -> float:
    """Returns the seconds to wait after one or more failures in a row."""
    return min(first_s * 2.0 ** min(failures - 1, 60), most_s)

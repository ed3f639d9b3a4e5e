"""How long to wait after a failed attempt: pauses grow from the first to the longest, and stay there.

Pure, so that cores can use it. Without jitter; `runtime.retry.Backoff` adds it, and waits.
"""

from collections.abc import Iterator


def pauses(first_s: float, most_s: float, growth: float = 2.0) -> Iterator[float]:
    pause_s = min(first_s, most_s)
    while True:
        yield pause_s
        pause_s = min(pause_s * growth, most_s)


def pause_after(failures: int, first_s: float, most_s: float) -> float:
    """Seconds to wait after so many failures in a row, at least one."""
    return min(first_s * 2.0 ** min(failures - 1, 60), most_s)

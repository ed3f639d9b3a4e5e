"""What a job's steps were measured to need, in words."""

from collections.abc import Iterator

from messages.measured import MeasuredProfile

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def step_text(measured: MeasuredProfile) -> str:
    """`420 ms, 33% of it waiting for others; 12 ms a sample on L4; 1.4 GB of gradients`"""
    return "; ".join(_parts(measured))


def _parts(measured: MeasuredProfile) -> Iterator[str]:
    if measured.step_s > 0:
        yield f"{_seconds(measured.step_s)}, {measured.waiting:.0%} of it waiting for others"
    for accelerator, each in measured.compute.items():
        yield f"{_seconds(each.seconds_per_sample)} a sample{f' on {accelerator}' if accelerator else ''}"
    yield f"{_bytes(measured.gradient_bytes)} of gradients"


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _bytes(count: int) -> str:
    size, units = float(count), list(_UNITS)
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.3g} {units[0]}"

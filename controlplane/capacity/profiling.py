"""What a job's steps need: what was measured, then what its file gives, then what is assumed."""

from collections.abc import Mapping

from msgspec import structs

from controlplane.planning.profiles import PEAK_TFLOPS, profile_of
from controlplane.throughput.profile import Compute, Profile
from messages.jobs import JobSpec
from messages.measured import MeasuredProfile

DIGITS = 2
LEAST_S, MOST_S, LARGEST_BATCH = 1e-9, 1e6, 10**9
"""What a script tells of itself is believed within these: beyond them the arithmetic of a plan has no numbers left."""
NEWS = 0.1
"""Measured figures go up and down, and every other one means another plan: less than this is no news."""


def combined(spec: JobSpec, measured: MeasuredProfile | None) -> Profile:
    """What was measured wins. Accelerators that neither were seen nor are in the file are used only without a file.

    Then they are compared with the one that was seen last by their makers' peak figures.
    """
    known = profile_of(spec)
    if measured is None:
        return known
    seen = _seen(measured)
    others = _scaled(seen) if known.is_assumed and seen else known.compute
    return structs.replace(
        known,
        compute={**others, **seen},
        gradient_bytes=measured.gradient_bytes or known.gradient_bytes,
        global_batch=min(measured.global_batch, LARGEST_BATCH) or known.global_batch,
        is_assumed=known.is_assumed and not seen,
    )


def knows_any(measured: MeasuredProfile) -> bool:
    """Enough steps were seen on an accelerator that the catalog has."""
    return bool(_seen(measured))


def coarse(profile: Profile) -> Profile:
    """Times with two digits; bytes and samples are counted and not measured."""
    return structs.replace(
        profile,
        compute={
            name: Compute(_rounded(each.seconds_per_sample), _rounded(each.seconds_per_step))
            for name, each in profile.compute.items()
        },
    )


def is_news(told: Profile | None, now: Profile, ranks: int) -> bool:
    """`ranks` share the batch: what one of them takes for its part is what counts."""
    if told is None or told.compute.keys() != now.compute.keys() or told.global_batch != now.global_batch:
        return True
    share = max(1.0, now.global_batch / ranks)
    pairs: list[tuple[float, float]] = [(told.gradient_bytes, now.gradient_bytes)]
    pairs += [(_step_s(told.compute[name], share), _step_s(each, share)) for name, each in now.compute.items()]
    return any(abs(new - old) > NEWS * old for old, new in pairs)


def _seen(measured: MeasuredProfile) -> dict[str, Compute]:
    return {
        name: Compute(min(max(each.seconds_per_sample, LEAST_S), MOST_S), min(each.seconds_per_step, MOST_S))
        for name, each in measured.compute.items()
        if name in PEAK_TFLOPS
    }


def _scaled(seen: Mapping[str, Compute]) -> dict[str, Compute]:
    """What is the same in each step is taken to be the same everywhere."""
    newest, compute = list(seen.items())[-1]
    return {
        name: Compute(compute.seconds_per_sample * PEAK_TFLOPS[newest] / peak, compute.seconds_per_step)
        for name, peak in PEAK_TFLOPS.items()
    }


def _step_s(compute: Compute, samples: float) -> float:
    return compute.seconds_per_sample * samples + compute.seconds_per_step


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{DIGITS}g}")

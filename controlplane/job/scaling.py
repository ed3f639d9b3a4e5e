"""Rules for the sizes that a person may request."""

from dataclasses import dataclass

from messages.jobs import Workers


@dataclass(frozen=True, slots=True)
class RefusedSize:
    why: str
    """Follows the job's name in a message."""
    instead: int
    """The nearest size that the job can have."""


def refuse_size(limits: Workers, workers: int) -> RefusedSize | None:
    if not limits.min <= workers <= limits.max:
        why = f"can have {limits.min} to {limits.max} workers (workers.min and workers.max in its file), not {workers}"
        return RefusedSize(why, min(max(workers, limits.min), limits.max))
    if limits.allowed and workers not in limits.allowed:
        sizes = ", ".join(map(str, limits.allowed))
        why = f"can have {sizes} workers (workers.allowed in its file), not {workers}"
        return RefusedSize(why, max((size for size in limits.allowed if size < workers), default=limits.least))
    return None

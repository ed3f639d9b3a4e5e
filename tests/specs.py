"""Builders of job specs."""

from typing import Any

from messages.criteria import Capacity
from messages.jobs import JobSpec, Launch, Workers


def a_spec(name: str = "demo", workers: int | Workers = 1, *, least: int = 1, ranks: int = 1, **fields: Any) -> JobSpec:
    """The spec of a job that runs `train.py`; `fields` are other fields of `JobSpec`."""
    count = workers if isinstance(workers, Workers) else Workers(max=workers, min=least, ranks=ranks)
    return JobSpec(**{"name": name, "launch": Launch(script="train.py"), "workers": count, **fields})


def a_planned_spec(
    name: str = "demo", workers: int | Workers = 2, *, least: int | None = None, fields: Any = None, **criteria: Any
) -> JobSpec:
    """The spec of a job with these criteria for its capacity, by default with a fixed number of workers."""
    fewest = least if least is not None or isinstance(workers, Workers) else workers
    return a_spec(name, workers, least=fewest or 1, capacity=Capacity(**criteria), **(fields or {}))

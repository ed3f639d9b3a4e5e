"""A job as its owner writes it: what to run, on how many workers, and what to do when things go wrong."""

import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct, field

from messages.criteria import Capacity, StepProfile, contradictory_criteria
from messages.ids import Name

Count = Annotated[int, Meta(ge=1, le=100_000)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Scalar = str | int | float | bool
Problem = tuple[str, str]

_QUANTITY = re.compile(r"^\+?(?=[\d.]*[1-9])(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3}|[numkMGTPE]|[KMGTPE]i)?\Z", re.ASCII)
"""A quantity of Kubernetes above 0."""
MODULE = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
"""A dotted name, as in `import`."""
_OBJECT_NAME = re.compile(r"^(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")


class Workers(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of workers that the job may have, and of ranks in each."""

    max: Count = 1
    min: Count = 1
    ranks: Annotated[int, Meta(ge=1, le=64)] = 1
    allowed: tuple[Count, ...] = ()
    """Numbers of workers that a world may have; if empty, any from `min` to `max`."""
    settle_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    """Seconds that a world of scripts without the SDK lasts before it is ended to admit more workers. Default: 20 times
    the duration of a restart, at most 10 minutes."""

    @property
    def least(self) -> int:
        """Returns the smallest number of workers that can train."""
        return min(self.allowed, default=self.min)

    def fitting(self, count: int) -> int:
        """Returns the largest number of workers for a world if `count` are available; `count` if none fits."""
        return max((size for size in self.allowed if size <= count), default=count)


class Failures(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on failures of the script itself. Lost workers never count."""

    max: Annotated[int, Meta(ge=0, le=10_000)] = 3
    backoff_s: Seconds = 1.0
    backoff_max_s: Seconds = 60.0


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on waits for events that may never come."""

    suspect_s: Seconds = 5.0
    """Seconds after which a silent worker is removed from the world."""
    ready_s: Seconds = 60.0
    """Seconds to wait for a worker that has not appeared or not started its trainers."""
    stop_grace_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """Seconds from SIGTERM to SIGKILL of a trainer."""
    park_s: Seconds = 0.4
    """Seconds after a halt until a live trainer without an answer is removed from the world."""
    meet_s: Seconds = 60.0
    """Seconds after which ranks that wait for a peer at the store are reported."""
    stall_s: Seconds | None = None
    """Seconds that the others wait in an all-reduce for a rank whose process runs, before it is removed as a failure of
    the script. None: 60, or 20 median steps if that is longer; 600 for a rank that has not measured its steps yet."""


class Launch(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What each rank runs: a script or a module, as with torchrun."""

    script: str | None = None
    module: str | None = None
    args: tuple[str, ...] = ()
    restart_args: tuple[str, ...] = ()
    """Appended to `args` at each restart of the script."""
    workdir: str | None = None
    python: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    checkpoint_path: str | None = None
    """A file or folder that the script changes with each checkpoint; relative to `workdir`."""
    preload: tuple[str, ...] = ()
    """Modules that each worker imports once, before its trainers are forked."""
    no_python: bool = False
    """True if `script` is a program, not a Python script."""

    @property
    def host_env(self) -> dict[str, str]:
        """Returns the environment of a worker and its host."""
        return {**self.env, "TRADEWIND_PRELOAD": ",".join(self.preload)} if self.preload else self.env


class Pod(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a worker's pod needs. Ignored for workers that are plain processes."""

    image: str | None = None
    """The job's own image, with interpreter, torch and packages. Default: Tradewind's image."""
    cpu: str | None = None
    memory: str | None = None
    gpu: bool = False
    """True for one GPU for each of the worker's ranks."""
    secrets: tuple[str, ...] = ()
    """Secrets whose keys become environment variables of the trainers."""


class JobSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: Name
    launch: Launch
    workers: Workers = Workers()
    pod: Pod = Pod()
    replica: Annotated[int, Meta(ge=1, le=4096)] = 1
    failures: Failures = Failures()
    timeouts: Timeouts = Timeouts()
    hyperparameters: dict[str, Scalar] = field(default_factory=dict)
    capacity: Capacity | None = None
    """Where the job may train and what it may cost. Without it, machines are chosen in the order of the fleet."""
    profile: StepProfile | None = None


def contradictions(spec: JobSpec) -> list[Problem]:
    """Returns contradictions between fields: pairs of the path in the file and the text of the problem.

    The text names all other concerned fields by their paths.
    """
    found = []
    if (spec.launch.script is None) == (spec.launch.module is None):
        found.append(("launch", "give either launch.script or launch.module, exactly one of them"))
    if spec.launch.no_python and spec.launch.module is not None:
        found.append(("launch.no_python", "is true, but launch.module needs Python; give launch.script"))
    if spec.workers.min > spec.workers.max:
        text = f"is {spec.workers.min}, more than workers.max = {spec.workers.max}; at most that"
        found.append(("workers.min", text))
    found += _allowed(spec)
    ranks_at_most = spec.workers.max * spec.workers.ranks
    if spec.replica > ranks_at_most:
        found.append(
            ("replica", f"is {spec.replica}, but workers.max × workers.ranks gives only {ranks_at_most} ranks")
        )
    found += _pod(spec.pod)
    for name in ("global_batch", "steps"):
        value = spec.hyperparameters.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            found.append((f"hyperparameters.{name}", f"is {value!r}, but must be a whole number of at least 1"))
    rate = spec.hyperparameters.get("learning_rate")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0):
        found.append(("hyperparameters.learning_rate", f"is {rate!r}, but must be a number above 0"))
    for place, name in enumerate(spec.launch.preload):
        if not MODULE.match(name):
            found.append((f"launch.preload[{place}]", f"is {name!r}, but must be a module's name, such as 'lightning'"))
    found += [(f"launch.{key}", "contains a NUL character") for key in _with_nul(spec.launch)]
    for name, value in spec.launch.env.items():
        if not name or "=" in name or "\0" in name + value:
            found.append((f"launch.env.{name!r}", "names need a letter and no '=', and nothing may hold a NUL"))
    return found + contradictory_criteria(spec.capacity, spec.profile, has_batch="global_batch" in spec.hyperparameters)


def _allowed(spec: JobSpec) -> Iterator[Problem]:
    workers, path = spec.workers, "workers.allowed"
    if list(workers.allowed) != sorted(set(workers.allowed)):
        yield path, f"is {list(workers.allowed)}, but must be ascending, each number once"
    for size in workers.allowed:
        if size > workers.max:
            yield path, f"has {size}, more than workers.max = {workers.max}; at most that"
        elif size < workers.min:
            yield path, f"has {size}, less than workers.min = {workers.min}; at least that"
        elif (ranks := size * workers.ranks) % spec.replica:
            text = f"{size} × workers.ranks = {ranks} ranks, which is no multiple of replica = {spec.replica}"
            yield path, f"has {size}: {text}"


def _with_nul(launch: Launch) -> list[str]:
    """Returns the keys whose text contains a NUL character, which no process accepts."""
    texts = {"script": launch.script, "module": launch.module, "workdir": launch.workdir, "python": launch.python}
    texts |= {f"args[{place}]": text for place, text in enumerate(launch.args)}
    texts |= {f"restart_args[{place}]": text for place, text in enumerate(launch.restart_args)}
    texts |= {"checkpoint_path": launch.checkpoint_path}
    return [key for key, text in texts.items() if text is not None and "\0" in text]


def _pod(pod: Pod) -> Iterator[Problem]:
    """Yields problems that Kubernetes would report only after machines were started."""
    for key, value, examples in (("cpu", pod.cpu, "'4' or '500m'"), ("memory", pod.memory, "'16Gi' or '500M'")):
        if value is not None and not _QUANTITY.match(value):
            yield f"pod.{key}", f"is {value!r}, but must be a quantity above 0 as Kubernetes writes it: {examples}"
    for place, name in enumerate(pod.secrets):
        if not _OBJECT_NAME.match(name):
            text = "must be a secret's name: lower-case letters, digits, '-' and '.', at most 253"
            yield f"pod.secrets[{place}]", f"is {name!r}, but {text}"

"""The GPUs of this machine, divided among the workers on it.

A worker sees as many as it has ranks, by CUDA_VISIBLE_DEVICES, so that `cuda:LOCAL_RANK` is another GPU in each worker.
What a worker has stands in the environment of its process: a controller that is started again reads it there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from runtime import proc

VARIABLE = "CUDA_VISIBLE_DEVICES"

Gpus = tuple[str, ...]


def of_machine(count: int | None, environ: Mapping[str, str], devices: Path = Path("/dev")) -> Gpus:
    """The machine's GPUs: as many as the settings say, or those that this process may see, or all."""
    given = environ.get(VARIABLE)
    if count is None and given is not None:
        names = [name.strip() for name in given.split(",")]
        return tuple(names[: names.index("-1")] if "-1" in names else filter(None, names))
    return tuple(str(index) for index in range(len([*devices.glob("nvidia[0-9]*")]) if count is None else count))


def of_process(pid: int) -> Gpus:
    """The GPUs in the environment of a worker."""
    prefix = f"{VARIABLE}=".encode()
    found = next((part for part in proc.environ(pid) if part.startswith(prefix)), prefix)
    return tuple(filter(None, found.removeprefix(prefix).decode(errors="replace").split(",")))


def share(gpus: Gpus, held: Iterable[Gpus], ranks: int) -> Gpus:
    """Chooses the GPUs that the fewest workers hold, in their order; none if there are fewer than ranks."""
    if ranks > len(gpus):
        return ()
    holders = Counter(gpu for each in held for gpu in each)
    free_first = sorted(gpus, key=lambda gpu: (holders[gpu], gpus.index(gpu)))[:ranks]
    return tuple(sorted(free_first, key=gpus.index))

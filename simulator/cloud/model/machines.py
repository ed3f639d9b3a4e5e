"""Machine types: vCPUs, memory and built-in accelerators."""

import re
from dataclasses import dataclass

GPU = "nvidia.com/gpu"
"""Name of an accelerator in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    vcpus: int
    memory_mib: int
    accelerator: str = ""
    accelerators: int = 0
    """Built-in accelerators; N1 machines have none and take attached ones."""


_SERIES = re.compile(r"^(e2|n1|n2|n2d|n4|c2|c2d|c3|c3d|c4|t2d)-(standard|highmem|highcpu)-(\d+)$")
_GIB_PER_VCPU = {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0}
_GIB_PER_VCPU_N1 = {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9}
_WITH_ACCELERATORS = {
    **{f"a2-highgpu-{n}g": (12 * n, 85 * n, "nvidia-tesla-a100", n) for n in (1, 2, 4, 8)},
    **{f"a2-ultragpu-{n}g": (12 * n, 170 * n, "nvidia-a100-80gb", n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": (26 * n, 234 * n, "nvidia-h100-80gb", n) for n in (1, 2, 4, 8)},
    **{f"g2-standard-{cpus}": (cpus, 4 * cpus, "nvidia-l4", 1) for cpus in (4, 8, 12, 16, 32)},
    **{f"g2-standard-{24 * n}": (24 * n, 96 * n, "nvidia-l4", 2 * n) for n in (1, 2, 4)},
    "a3-ultragpu-8g": (224, 2952, "nvidia-h200-141gb", 8),
    "a4-highgpu-8g": (224, 3968, "nvidia-b200", 8),
}
_SMALL = {"e2-micro": (2, 1), "e2-small": (2, 2), "e2-medium": (2, 4), "f1-micro": (1, 1), "g1-small": (1, 2)}


def machine(name: str) -> Machine | None:
    """The machine type of that name, if there is one."""
    if name in _WITH_ACCELERATORS:
        vcpus, memory_gib, accelerator, count = _WITH_ACCELERATORS[name]
        return Machine(name, vcpus, memory_gib * 1024, accelerator, count)
    if name in _SMALL:
        vcpus, memory_gib = _SMALL[name]
        return Machine(name, vcpus, memory_gib * 1024)
    match = _SERIES.match(name)
    if match is None or not 1 <= int(match[3]) <= 416:
        return None
    per_vcpu = (_GIB_PER_VCPU_N1 if match[1] == "n1" else _GIB_PER_VCPU)[match[2]]
    return Machine(name, int(match[3]), round(int(match[3]) * per_vcpu * 1024))


def may_take(host: Machine, accelerator: str) -> bool:
    """True if the accelerator can be attached to the machine."""
    return host.name.startswith("n1-") and accelerator in ("nvidia-tesla-t4", "nvidia-tesla-v100")

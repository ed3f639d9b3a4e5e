"""Google's names of machine types."""

import re

_SHARED_CORE = {"e2-micro": 2, "e2-small": 2, "e2-medium": 2, "f1-micro": 1, "g1-small": 1}
_NAMED = re.compile(r"-[a-z]+-(\d+)(?:-[a-z]+)?\Z")
_CUSTOM = re.compile(r"(?:\A|-)custom-(\d+)-")
_BY_GPUS = re.compile(r"(.+)-(\d+)g\Z")
_VCPUS_PER_GPU = {"a2-highgpu": 12, "a2-ultragpu": 12, "a3-highgpu": 26}


def vcpus_of(machine_type: str) -> int | None:
    """The number of vCPUs of one machine; None if its name does not tell it."""
    if machine_type in _SHARED_CORE:
        return _SHARED_CORE[machine_type]
    counted = _CUSTOM.search(machine_type) or _NAMED.search(machine_type)
    if counted is not None:
        return int(counted[1])
    by_gpus = _BY_GPUS.match(machine_type)
    per_gpu = _VCPUS_PER_GPU.get(by_gpus[1]) if by_gpus is not None else None
    return per_gpu * int(by_gpus[2]) if by_gpus is not None and per_gpu is not None else None

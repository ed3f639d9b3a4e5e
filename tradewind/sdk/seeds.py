"""Seeds for random numbers: functions of the run's seed and the step, so no generator state must survive."""

import hashlib
import random
import sys

import torch


def seed_torch(device: torch.device, *parts: int) -> None:
    _seed_torch(device, stable_hash("step", *parts))


def seed_all(device: torch.device, *parts: int) -> None:
    """Seeds the global generators of torch, Python, and numpy if the script uses it."""
    mixed = stable_hash("step", *parts)
    _seed_torch(device, mixed)
    random.seed(mixed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(mixed & (2**32 - 1))


def stable_hash(*parts: int | str) -> int:
    """A hash of 63 bits, the same in every process, on every platform and with every version of Python."""
    digest = hashlib.blake2b(" ".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _seed_torch(device: torch.device, mixed: int) -> None:
    torch.default_generator.manual_seed(mixed)
    if device.type == "cuda":
        torch.cuda.manual_seed(mixed)

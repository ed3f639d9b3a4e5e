"""Random numbers in a run are a function of its seed and of what is being computed: so none of them has to survive."""

import random
import sys

import torch


def seed_torch(device: torch.device, *parts: int) -> None:
    mixed = _mixed(parts)
    torch.default_generator.manual_seed(mixed)
    if device.type == "cuda":
        torch.cuda.manual_seed(mixed)


def seed_all(device: torch.device, *parts: int) -> None:
    """The global generators of torch, Python, and numpy if the script uses it."""
    mixed = _mixed(parts)
    seed_torch(device, *parts)
    random.seed(mixed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(mixed & (2**32 - 1))


def _mixed(parts: tuple[int, ...]) -> int:
    return hash(parts) & (2**63 - 1)

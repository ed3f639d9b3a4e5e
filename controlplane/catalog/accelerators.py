"""The accelerators of the catalog, with its own names and those that clouds and people use."""

from functools import lru_cache

from msgspec import Struct


class Accelerator(Struct, frozen=True):
    name: str
    memory_gib: int
    """Memory of one GPU."""
    alias: str
    """The name in Kubernetes labels, which fleet files may use too."""
    bus_bit_per_s: float
    """The approximate bandwidth between the GPUs of a machine: PCIe or NVLink."""


ACCELERATORS = (
    Accelerator("T4", 16, "nvidia-tesla-t4", 64e9),
    Accelerator("L4", 24, "nvidia-l4", 100e9),
    Accelerator("V100", 16, "nvidia-tesla-v100", 540e9),
    Accelerator("A100-40", 40, "nvidia-tesla-a100", 1900e9),
    Accelerator("A100-80", 80, "nvidia-a100-80gb", 1900e9),
    Accelerator("H100", 80, "nvidia-h100-80gb", 2400e9),
)
BY_NAME = {each.name: each for each in ACCELERATORS}
_EXACT = {text: each for each in ACCELERATORS for text in (each.name.lower(), each.alias)}


@lru_cache(maxsize=1024)
def canonical(name: str | None) -> str:
    """The catalog's name of an accelerator; the given name if the catalog has none; empty for None."""
    known = _EXACT.get(name.lower()) if name is not None else None
    return known.name if known is not None else name or ""


def matching(text: str) -> tuple[Accelerator, ...]:
    """The accelerators that a text matches: `a100` both sizes, `A100-80` and `nvidia-a100-80gb` one of them."""
    wanted = text.strip().lower()
    if wanted in _EXACT:
        return (_EXACT[wanted],)
    return tuple(each for each in ACCELERATORS if each.name.lower().startswith(f"{wanted}-"))

"""The accelerators that the catalog knows, under the names that people, GKE and Google's price list use."""

from msgspec import Struct


class Accelerator(Struct, frozen=True):
    name: str
    memory_gib: int
    """Of one GPU."""
    gke: str
    """As node pools and fleet files call it."""
    sku: str
    """As descriptions in Google's price list call it."""
    bus_bit_per_s: float
    """Between the GPUs of a machine: PCIe or NVLink, roughly."""


ACCELERATORS = (
    Accelerator("T4", 16, "nvidia-tesla-t4", "Tesla T4", 64e9),
    Accelerator("L4", 24, "nvidia-l4", "L4", 100e9),
    Accelerator("V100", 16, "nvidia-tesla-v100", "Tesla V100", 540e9),
    Accelerator("A100-40", 40, "nvidia-tesla-a100", "Tesla A100", 1900e9),
    Accelerator("A100-80", 80, "nvidia-a100-80gb", "Tesla A100 80GB", 1900e9),
    Accelerator("H100", 80, "nvidia-h100-80gb", "H100 80GB", 2400e9),
)
BY_NAME = {each.name: each for each in ACCELERATORS}
_BY_GKE = {each.gke: each for each in ACCELERATORS}


def from_gke(name: str) -> Accelerator | None:
    return _BY_GKE.get(name)


def matching(text: str) -> tuple[Accelerator, ...]:
    """What a person means: `a100` is both sizes, `A100-80` and `nvidia-a100-80gb` one of them."""
    wanted = text.strip().lower()
    exact = tuple(each for each in ACCELERATORS if wanted in (each.name.lower(), each.gke))
    return exact or tuple(each for each in ACCELERATORS if each.name.lower().startswith(f"{wanted}-"))

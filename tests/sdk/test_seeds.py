"""Random numbers are a function of seed and step, in every process and with every version of Python."""

import random

import torch

from tradewind.sdk.seeds import seed_all, seed_torch, stable_hash

CPU = torch.device("cpu")


def test_a_hash_is_the_same_everywhere_and_for_ever() -> None:
    assert stable_hash("step", 3, 7) == 2696874948520756052
    assert stable_hash("step", -1, 2**70) == 8712376489619667942


def test_parts_do_not_run_into_each_other() -> None:
    assert len({stable_hash(1, 23), stable_hash(12, 3), stable_hash(123), stable_hash(1, 2, 3)}) == 4


def test_the_same_parts_draw_the_same_numbers() -> None:
    def drawn(*parts: int) -> tuple[float, float]:
        seed_all(CPU, *parts)
        return torch.rand(()).item(), random.random()

    assert drawn(0, 5, 2) == drawn(0, 5, 2) != drawn(0, 6, 2)


def test_before_an_optimizers_own_step_only_torch_is_seeded() -> None:
    random.seed(1)
    before = random.getstate()
    seed_torch(CPU, 0, 5)
    assert random.getstate() == before

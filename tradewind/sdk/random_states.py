"""The random states of a process, in the shape of anything else that must survive: one of a state's others."""

import random
import sys
from array import array
from collections.abc import Mapping
from typing import Any

import torch


class RandomStates:
    """Of torch (and its GPUs), Python, and numpy if the script uses it. Plain values, so that loading runs no code."""

    def state_dict(self) -> dict[str, Any]:
        version, words, gauss = random.getstate()
        states: dict[str, Any] = {
            "torch": torch.get_rng_state(),
            "python": (version, array("Q", words).tobytes(), gauss),
        }
        if torch.cuda.is_available():
            states["cuda"] = torch.cuda.get_rng_state_all()
        if (numpy := sys.modules.get("numpy")) is not None:
            name, keys, *rest = numpy.random.get_state()
            states["numpy"] = (name, array("Q", keys.tolist()).tobytes(), *rest)
        return states

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        torch.set_rng_state(state_dict["torch"])
        version, words, gauss = state_dict["python"]
        random.setstate((version, tuple(array("Q", words)), gauss))
        if "cuda" in state_dict and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state_dict["cuda"][: torch.cuda.device_count()])
        if "numpy" in state_dict and (numpy := sys.modules.get("numpy")) is not None:
            name, words, *rest = state_dict["numpy"]
            numpy.random.set_state((name, numpy.array(array("Q", words), dtype="uint32"), *rest))

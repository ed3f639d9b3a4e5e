"""All that the host does with torch: what is slow, before the first fork; and what forks must not share, after."""

import gc
import os
import random
import re
import sys
from collections.abc import Mapping

from tradewind.host.preload import preload


def warm_up() -> str:
    """Imports what trainers will need and returns torch's version. CUDA is left alone: it does not survive a fork."""
    # Where an import asks whether there is a GPU, torch then asks the driver's library instead of starting CUDA.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data

    # The first optimizer of a process imports the compiler: 1.5 s that a trainer would otherwise pay.
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    preload()
    gc.collect()
    gc.freeze()  # so that the collector of a trainer does not copy the pages it shares with the host
    return str(torch.__version__)


def start_anew(env: Mapping[str, str]) -> None:
    """Gives a forked process its own random numbers, and the number of threads that its environment asks for."""
    import torch

    random.seed()
    torch.default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    # OpenMP has read the host's environment and will not look again.
    asked = re.match(r"\s*(\d+)", env.get("OMP_NUM_THREADS", ""))
    if asked and int(asked[1]) > 0:
        torch.set_num_threads(int(asked[1]))

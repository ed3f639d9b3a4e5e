"""The host's use of torch: slow imports before the first fork, and resets of shared state after each fork."""

import gc
import os
import random
import re
import sys
from collections.abc import Mapping

from tradewind.host.preload import preload


def warm_up() -> str:
    """Imports the modules that trainers need; returns torch's version. It does not start CUDA: forks cannot use it."""
    # If an import checks for GPUs, torch then asks the driver's library instead of starting CUDA.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data

    # The first optimizer of a process imports the compiler: 1.5 s that a trainer would otherwise pay.
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    preload()
    gc.collect()
    gc.freeze()  # otherwise a trainer's garbage collector would copy the pages that it shares with the host
    return str(torch.__version__)


def reset_for_fork(env: Mapping[str, str]) -> None:
    """Gives a forked process its own random seeds, and the number of threads that its environment sets."""
    import torch

    random.seed()
    torch.default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    # OpenMP has read the host's environment and does not read it again.
    asked = re.match(r"\s*(\d+)", env.get("OMP_NUM_THREADS", ""))
    if asked and int(asked[1]) > 0:
        torch.set_num_threads(int(asked[1]))

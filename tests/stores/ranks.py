"""A rank like that of a torchrun script: meets its peers through `env://`, runs an all-reduce, prints the result.

Repeats that for each line on its stdin (rank, world size, port), because importing torch takes longer than the rest.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
for line in sys.stdin:
    os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_PORT"] = line.split()
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    dist.destroy_process_group()
    sys.stdout.write(f"{total.item():g}\n")
    sys.stdout.flush()

"""Trains the same model with steps of the same duration under torchft: one replica per process, one flat gradient.

It runs in an interpreter that has torchft. It writes every committed step: time, step, participants.
"""

import argparse
import importlib
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn
from torch._C._distributed_c10d import TCPStore

_INPUTS = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lighthouse", required=True)
    parser.add_argument("--replica", required=True)
    parser.add_argument("--least", type=int, required=True)
    parser.add_argument("--steps", type=Path, required=True, help="folder for the traces")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--sleep-ms", type=float, default=50.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    width = options.width
    model = nn.Sequential(
        nn.Linear(_INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, _INPUTS)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    parameters = list(model.parameters())
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
    views = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, view in zip(parameters, views, strict=True):
        parameter.grad = view.view_as(parameter)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    groups = importlib.import_module("torchft.process_group")
    manager = importlib.import_module("torchft.manager").Manager(
        pg=groups.ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=lambda state: model.load_state_dict(state["model"]),
        state_dict=lambda: {"model": model.state_dict()},
        min_replica_size=options.least,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=options.lighthouse,
        replica_id=options.replica,
        hostname="127.0.0.1",
        init_sync=False,
    )
    inputs = torch.randn(options.samples, _INPUTS)
    with (options.steps / f"{os.getpid()}.steps").open("w", buffering=1) as steps:
        while True:
            manager.start_quorum()
            time.sleep(options.sleep_ms / 1000)
            flat.zero_()
            torch.autograd.backward(nn.functional.mse_loss(model(inputs), inputs))
            manager.allreduce(flat).wait()
            if manager.should_commit():
                optimizer.step()
                steps.write(f"{time.monotonic()} {manager.current_step()} {manager.num_participants()}\n")


if __name__ == "__main__":
    main()

"""Plain `python train.py`: one process without an agent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = """
import json, math, os, threading
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

def facts():
    inodes = {os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    tables = [Path(f"/proc/self/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6", "udp", "udp6")]
    ports = [row for table in tables for row in table if f"socket:[{row.split()[9]}]" in inodes]
    return {
        "ports": ports,
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "tasks": len(os.listdir("/proc/self/task")),
    }

torch.set_num_threads(1)
inputs = torch.randn(96, 4)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).backward()
optimizer.step()
before = facts()

import tradewind
from tradewind.sdk.data import loader

loader._WORTH_A_THREAD_S = math.inf  # its samples are in memory, however slow this machine is
run = tradewind.Run(model, optimizer, TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch=8, steps=5)
during = []
for features, target in run:
    run.backward(nn.functional.mse_loss(model(features), target))
    during.append(facts())
print(json.dumps({"before": before, "during": during, "after": facts(), "holds": run.certificate.holds}))
"""


def run_alone(tmp_path: Path) -> dict[str, Any]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True)
    output: dict[str, Any] = json.loads(ran.stdout)
    return output


def test_a_script_that_runs_alone_opens_no_port_and_starts_no_thread(tmp_path: Path) -> None:
    output = run_alone(tmp_path)
    assert output["holds"] and len(output["during"]) == 5
    for facts in (*output["during"], output["after"]):
        assert facts == output["before"]
    assert output["before"]["ports"] == [] and output["before"]["threads"] == ["MainThread"]

"""What is left of a run when the interpreter ends."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import atexit
from pathlib import Path

def threads():
    return sorted((task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir())

# Registered before torch and tradewind register theirs, so it runs after them.
atexit.register(lambda: Path(f"end-{os.environ['RANK']}").write_text("\\n".join(threads())))

import os, torch, tradewind

model = torch.nn.Linear(4, 1)
run = tradewind.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(16, 4), batch=4, steps=3)
for inputs in run:
    run.backward(model(inputs).sum())
Path(f"training-{os.environ['RANK']}").write_text("\\n".join(threads()))
"""
GLOO = "gloo"


def test_no_thread_of_gloo_outlives_the_interpreter(tmp_path: Path) -> None:
    """A thread that releases the tensors of the last all-reduce while the interpreter ends aborts the process."""
    (tmp_path / "train.py").write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*torchrun, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environ
    )
    assert ended.returncode == 0, ended.stderr
    for rank in range(2):
        assert GLOO in (tmp_path / f"training-{rank}").read_text()
        assert GLOO not in (tmp_path / f"end-{rank}").read_text()

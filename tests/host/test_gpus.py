"""The GPUs of a host: the driver on its paths, and the check before it reports ready."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.host.agent import HOST, Agent
from tests.light import CPU_BUILD, torch_with_gpus
from tradewind.host.gpus import cuda_hangs, with_driver

DRIVER = "/usr/local/nvidia"
TELLS = "import os; print(os.environ['LD_LIBRARY_PATH'], os.environ['PATH'].split(':')[-1], flush=True)"


@contextmanager
def a_host(torch: str, **env: str) -> Iterator[Agent]:
    agent = Agent((sys.executable, str(HOST)), env={**os.environ, "PYTHONPATH": torch, **env})
    try:
        yield agent
    finally:
        agent.close()


def test_a_host_with_enough_gpus_says_hello(tmp_path: Path) -> None:
    with a_host(torch_with_gpus(tmp_path, 2), TRADEWIND_GPUS="2") as agent:
        assert agent.wait_for("hello")["torch"] == "0.0-light"


@pytest.mark.parametrize(
    ("torch", "values"),
    [
        ((2, "pass", CPU_BUILD), ("without CUDA,", "pod.image", "--build-arg TORCH=cuda")),
        ((0,), (" 0 GPUs,", "libcuda.so.1:", " node ")),
        ((1,), (" 1 GPU,", "workers.ranks")),
        ((2, "raise RuntimeError('driver too old\\nmore')"), (" 2 GPUs,", ": driver too old; ", " node ")),
        ((2, "import os; os._exit(1)"), (" 0 GPUs,", " crashed; ", " node ")),
    ],
)
def test_a_host_without_the_gpus_refuses_with_one_line(
    tmp_path: Path, torch: tuple[Any, ...], values: tuple[str, ...]
) -> None:
    with a_host(torch_with_gpus(tmp_path, *torch), TRADEWIND_GPUS="2") as agent:
        refused = agent.wait_for("refused")
        assert all(each in refused["why"] for each in ("torch 0.0-light ", " 2 GPUs (pod.gpu): ", *values))
        assert "\n" not in refused["why"]
        assert refused["unfit"] is True
        assert agent.process.wait(60) == 1
        assert all(message["type"] != "hello" for message in agent.messages)


def test_a_driver_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    torch = torch_with_gpus(tmp_path, 1, "import time; time.sleep(600)")
    asks = "from tradewind.host.gpus import why_unfit; print(why_unfit(0.1))"
    env = {**os.environ, "PYTHONPATH": torch, "TRADEWIND_GPUS": "1"}
    asked = subprocess.run([sys.executable, "-c", asks], env=env, capture_output=True, text=True, timeout=60)
    assert asked.stdout == f"{cuda_hangs(1, 0.1)}\n"


def test_a_check_that_cannot_be_killed_is_left_behind(tmp_path: Path) -> None:
    torch, said = torch_with_gpus(tmp_path, 1, "import time; time.sleep(20)"), tmp_path / "said"
    unkillable = "gpus.os.kill = lambda *_: None; gpus.END_S = 0.1"
    asks = f"from tradewind.host import gpus; {unkillable}; print(gpus.why_unfit(0.1))"
    env = {**os.environ, "PYTHONPATH": torch, "TRADEWIND_GPUS": "1"}
    with said.open("w") as output:
        subprocess.run([sys.executable, "-c", asks], env=env, stdout=output, timeout=10)
    assert said.read_text() == f"{cuda_hangs(1, 0.1)}\n"


@pytest.mark.parametrize(
    ("env", "libraries", "path"),
    [
        ({}, f"{DRIVER}/lib64", f"{DRIVER}/bin"),
        ({"LD_LIBRARY_PATH": "/image", "PATH": "/bin"}, f"/image:{DRIVER}/lib64", f"/bin:{DRIVER}/bin"),
        ({"LD_LIBRARY_PATH": f"{DRIVER}/lib64:/image"}, f"{DRIVER}/lib64:/image", f"{DRIVER}/bin"),
    ],
)
def test_the_folders_of_the_driver_come_after_what_is_there(env: dict[str, str], libraries: str, path: str) -> None:
    found = with_driver({"TRADEWIND_DRIVER_FOLDER": DRIVER, **env})
    assert (found["LD_LIBRARY_PATH"], found["PATH"]) == (libraries, path)
    assert with_driver(found) == found
    assert with_driver(env) == env


def test_trainers_keep_the_paths_of_the_image_of_the_job_and_of_the_driver(tmp_path: Path) -> None:
    script = tmp_path / "tells.py"
    script.write_text(TELLS)
    env = {"TRADEWIND_DRIVER_FOLDER": DRIVER, "LD_LIBRARY_PATH": "/image"}
    with a_host(torch_with_gpus(tmp_path, 0), **env) as agent:
        agent.wait_for("hello")
        libraries = Path(f"/proc/{agent.process.pid}/environ").read_bytes().split(b"\0")
        assert f"LD_LIBRARY_PATH=/image:{DRIVER}/lib64".encode() in libraries
        generation = agent.fork(script, env=lambda rank: {"LD_LIBRARY_PATH": "/job"}, inherit=True)
        agent.wait_for("exited", generation)
        assert agent.lines(generation) == [f"/job:{DRIVER}/lib64 {DRIVER}/bin"]

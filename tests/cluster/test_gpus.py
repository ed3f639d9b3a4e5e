"""GPUs of one machine, divided among the workers on it."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from agents.cluster import machine
from messages.clusters import KeepWorkers, WorkerTemplate
from messages.ids import JobName, WorkerId
from tests.cluster.conftest import JOB, Bench, environment_of
from tests.conftest import eventually

EIGHT = tuple("01234567")
OTHER = JobName("chooses-itself")


def test_gpus_are_counted_by_their_devices(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert machine.machine_gpus(None, {}, tmp_path) == ("0", "1", "2")
    assert machine.machine_gpus(2, {}, tmp_path) == ("0", "1")


def test_what_the_controller_may_see_is_what_there_is() -> None:
    assert machine.machine_gpus(None, {"CUDA_VISIBLE_DEVICES": "3, GPU-5f"}) == ("3", "GPU-5f")
    assert machine.machine_gpus(None, {"CUDA_VISIBLE_DEVICES": "1,-1,2"}) == ("1",)
    assert machine.machine_gpus(None, {"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_each_worker_gets_others_and_a_replacement_what_became_free() -> None:
    first = machine.share_gpus(EIGHT, [], 2)
    second = machine.share_gpus(EIGHT, [first], 2)
    third = machine.share_gpus(EIGHT, [first, second], 2)
    assert (first, second, third) == (("0", "1"), ("2", "3"), ("4", "5"))
    assert machine.share_gpus(EIGHT, [first, third, ("6", "7")], 2) == second


def test_more_workers_than_gpus_share_them_evenly() -> None:
    two = ("0", "1")
    assert machine.share_gpus(two, [("0",), ("1",)], 1) == ("0",)
    assert machine.share_gpus(two, [("0",), ("1",), ("0",)], 1) == ("1",)
    assert machine.share_gpus(two, [], 3) == ()


def visible(workers: Mapping[WorkerId, int]) -> list[str]:
    return sorted(environment_of(pid).get("CUDA_VISIBLE_DEVICES", "") for pid in workers.values())


async def test_workers_of_a_machine_see_different_gpus_also_after_a_loss_and_another_controller(bench: Bench) -> None:
    controller = await bench.start_and_hear(gpus=6, keep_workers=True)
    template = WorkerTemplate(slots=2, divide_gpus=True)
    assert (await bench.ask(KeepWorkers(JOB, 2, template))).ok
    workers = await bench.until_alive(2)
    assert visible(workers) == ["0,1", "2,3"]
    chosen = WorkerTemplate(env={"CUDA_VISIBLE_DEVICES": "1"}, divide_gpus=True)
    assert (await bench.ask(KeepWorkers(OTHER, 1, chosen))).ok
    assert visible(await bench.until_alive(3)) == ["0,1", "1", "2,3"]
    assert (await bench.ask(KeepWorkers(OTHER, 0, chosen))).ok
    await bench.until_alive(2)
    controller.kill()
    await controller.wait()
    await bench.start_and_hear(gpus=6)
    assert (await bench.ask(KeepWorkers(JOB, 3, template))).ok
    workers = await bench.until_alive(3)
    assert visible(workers) == ["0,1", "2,3", "4,5"]
    victim, pid = next(iter(workers.items()))
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: victim in bench.gone, what="the killed worker is reported gone")
    assert visible(await bench.until_alive(3)) == ["0,1", "2,3", "4,5"]

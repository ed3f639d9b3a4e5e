"""Modules that the host imports once for all trainers that it forks."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host.agent import Agent
from tests.light import light_torch
from tradewind.host.preload import cannot_import, starts_threads

PreloadingHost = Callable[[str], Agent]
PREFIX = "tradewind: launch.preload: "

COUNTED = "open('{log}', 'a').write('imported\\n')\n"
THREADED = "import threading\nthreading.Thread(target=threading.Event().wait, name='poller', daemon=True).start()\n"
SCRIPT = "import slow_module, sys; print(slow_module.__name__)"


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "slow_module.py").write_text(COUNTED.format(log=tmp_path / "log"))
    (folder / "threaded.py").write_text(THREADED)
    (folder / "broken.py").write_text("raise RuntimeError('no luck\\nsecond line')\n")
    (folder / "leaving.py").write_text("raise SystemExit(3)\n")
    return folder


@pytest.fixture
def preloading(tmp_path: Path, modules: Path) -> Iterator[PreloadingHost]:
    started: list[Agent] = []

    def start(names: str) -> Agent:
        path = os.pathsep.join([light_torch(tmp_path / "light"), str(modules)])
        started.append(Agent(env={**os.environ, "PYTHONPATH": path, "TRADEWIND_PRELOAD": names}))
        started[-1].wait_for("hello")
        return started[-1]

    yield start
    for agent in started:
        agent.close()


def a_trainer(host: Agent, modules: Path, rank: int = 0) -> tuple[list[str], list[str]]:
    """What it printed, and what to standard error."""
    environment = {"PYTHONPATH": str(modules), "RANK": str(rank)}
    generation = host.fork(host.script(SCRIPT), env=lambda _: environment)
    assert host.finish(generation)["code"] == 0, host.lines(generation, stream="stderr")
    return host.lines(generation), host.lines(generation, stream="stderr")


def test_a_module_is_imported_once_for_a_start_and_two_restarts(
    preloading: PreloadingHost, modules: Path, tmp_path: Path
) -> None:
    host = preloading("slow_module")
    for _ in range(3):
        assert a_trainer(host, modules) == (["slow_module"], [])
    assert (tmp_path / "log").read_text() == "imported\n"


def test_a_module_that_cannot_be_imported_is_one_line_and_the_script_is_started_without_it(
    preloading: PreloadingHost, modules: Path, tmp_path: Path
) -> None:
    host = preloading("nosuch,broken,leaving,slow_module")
    lines = [
        f"{PREFIX}{cannot_import(name, why)}"
        for name, why in (
            ("nosuch", "ModuleNotFoundError: No module named 'nosuch'"),
            ("broken", "RuntimeError: no luck"),
            ("leaving", "SystemExit: 3"),
        )
    ]
    assert a_trainer(host, modules) == (["slow_module"], lines)
    assert a_trainer(host, modules, rank=1) == (["slow_module"], [])
    assert (tmp_path / "log").read_text() == "imported\n"


def test_a_module_that_starts_threads_is_named_with_them(preloading: PreloadingHost, modules: Path) -> None:
    _, said = a_trainer(preloading("threaded"), modules)
    assert said == [f"{PREFIX}{starts_threads('threaded', 1, 'poller')}"]

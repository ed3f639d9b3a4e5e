"""The start and the end of hosts: no trainer is left behind."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.host.agent import HOST, WAIT_S, Agent, wait_gone
from tests.light import light_torch
from tradewind.host.diagnosis import CHOOSE_ANOTHER
from tradewind.host.loop import ENDING

IGNORES_SIGTERM = """
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork():
        print("ready")
    time.sleep(600)
"""


@contextmanager
def a_host(*command: str, env: dict[str, str] | None = None) -> Iterator[Agent]:
    agent = Agent(command, env)
    try:
        yield agent
    finally:
        agent.close()


def _start(agent: Agent, script: str, ranks: int = 2) -> list[int]:
    """The process ids of trainers that are in the midst of their work, and of all in their groups."""
    generation = agent.fork(agent.script(script), ranks=ranks)
    for rank in range(ranks):
        agent.wait_for_line(generation, "ready", rank)
    leaders = {agent.wait_for("forked", generation, rank)["pid"] for rank in range(ranks)}
    return [int(stat.parent.name) for stat in Path("/proc").glob("[0-9]*/stat") if _group(stat) in leaders]


def _group(stat: Path) -> int | None:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[2])
    except (FileNotFoundError, ProcessLookupError):
        return None


def test_a_host_says_hello_once_it_is_warm(host: Agent) -> None:
    hello = host.wait_for("hello")
    assert hello["pid"] == host.process.pid
    assert hello["python"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert hello["torch"].startswith("2.")
    assert hello["warm_s"] > 0


def test_a_killed_host_takes_its_trainers_along(own_host: Agent) -> None:
    pids = _start(own_host, "import time; print('ready'); time.sleep(600)")
    assert len(pids) == 2
    own_host.process.kill()
    wait_gone([own_host.process.pid, *pids])


def test_a_host_whose_agent_is_gone_ends_all_and_exits(own_host: Agent) -> None:
    pids = _start(own_host, IGNORES_SIGTERM)
    assert len(pids) == 4
    own_host.hang_up()
    assert own_host.process.wait(WAIT_S) == 0
    wait_gone(pids)


def test_a_host_whose_agent_goes_while_it_warms_up_exits() -> None:
    with a_host(sys.executable, str(HOST)) as agent:
        agent.hang_up()
        assert agent.process.wait(WAIT_S) == 0


def test_exit_ends_all_tells_it_and_exits_while_signals_meant_for_the_agent_do_nothing(own_host: Agent) -> None:
    pids = _start(own_host, "import time; print('ready'); time.sleep(600)")
    own_host.process.send_signal(signal.SIGTERM)
    own_host.process.send_signal(signal.SIGINT)
    own_host.send(type="stop", generation=0, grace_s=0)
    own_host.wait_for("stopped", 0)
    late = own_host.fork("train.py", after={"type": "exit"})
    assert own_host.wait_for("fork_failed", late, 0)["error"] == ENDING
    for rank in range(2):
        assert own_host.wait_for("exited", late - 1, rank)["signal"] == "SIGTERM"
    assert own_host.process.wait(WAIT_S) == 0
    wait_gone(pids)


def test_a_host_runs_from_its_file_where_tradewind_is_not_installed() -> None:
    import torch

    site_packages = str(Path(torch.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": site_packages}
    script = """
        import importlib.util, sys, tradewind
        tradewind.report(1)
        ours = [name for name in ("messages", "runtime", "protocol", "loop") if importlib.util.find_spec(name)]
        print(tradewind.__file__, ours, [entry for entry in sys.path if entry in sys.argv])
    """
    folders = [str(HOST.parents[number]) for number in range(3)]
    # Without `site` the editable install of the tests' own environment is not seen.
    with a_host(sys.executable, "-S", str(HOST), env=env) as agent:
        probe = subprocess.run([sys.executable, "-S", "-c", "import tradewind"], env=env, cwd="/", capture_output=True)
        assert b"ModuleNotFoundError" in probe.stderr
        generation = agent.fork(agent.script(script), argv=folders)
        assert agent.finish(generation)["code"] == 0, agent.lines(generation, stream="stderr")
        assert agent.lines(generation) == [f"{HOST.parents[1] / '__init__.py'} [] []"]
        assert agent.wait_for("progress", generation)["reports"][0]["step"] == 1


def test_a_host_runs_as_a_module(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": light_torch(tmp_path / "light")}
    with a_host(sys.executable, "-m", "tradewind.host", env=env) as agent:
        generation = agent.fork(agent.script("import sys; print(__name__, sys.argv[1:])"), argv=["a"])
        assert agent.finish(generation)["code"] == 0
        assert agent.lines(generation) == ["__main__ ['a']"]


def test_an_interpreter_without_torch_is_reported_in_one_line() -> None:
    with a_host(sys.executable, "-S", "-I", str(HOST)) as agent:
        why = agent.wait_for("refused")["why"]
        assert why.startswith(f"{sys.executable} ") and " 'torch'. " in why and why.endswith(CHOOSE_ANOTHER)
        assert agent.process.wait(WAIT_S) == 1
        assert agent.process.stderr is not None
        assert agent.process.stderr.read().count("\n") == 1


def test_a_host_without_an_agent_fails_with_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(HOST), "--socket", str(tmp_path / "absent")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert ran.returncode == 1
    assert ran.stderr.startswith("tradewind.host: ")
    assert f" {tmp_path / 'absent'}: [Errno {errno.ENOENT}] " in ran.stderr
    assert ran.stderr.count("\n") == 1

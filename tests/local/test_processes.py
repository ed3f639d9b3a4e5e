"""Descendants of this process are found and ended, also if the command is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime import children
from tests.conftest import eventually_blocking
from tests.escaping import escape_source, escaped
from tradewind.local import processes
from tradewind.local.guard import MARK, execute, marked

FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0 and os.fork() == 0:
    os.setsid()
os.write(1, b"born\\n")
time.sleep(600)
"""
WAIT_S = 30.0


@contextmanager
def a_family(environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A parent, a child and a grandchild in another session, that all ignore SIGTERM."""
    parent = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})}
    )
    try:
        assert parent.stdout is not None
        assert [parent.stdout.readline() for _ in range(3)] == ["born\n"] * 3
        yield parent
    finally:
        processes.kill_tree(parent.pid)
        parent.wait(WAIT_S)
        if parent.stdout is not None:
            parent.stdout.close()


def wait_dead(pids: list[int]) -> None:
    eventually_blocking(lambda: all(map(children.is_dead, pids)), f"the end of {pids}", WAIT_S)


def test_a_lost_machine_takes_everything_below_it_along() -> None:
    with a_family() as parent:
        below = children.descendants(parent.pid)
        killed = processes.kill_tree(parent.pid)
        assert len(below) == 2
        assert sorted(killed) == sorted([parent.pid, *below])
        wait_dead(killed)


def test_a_process_that_has_ended_is_not_alive_even_before_it_is_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert children.is_dead(child.pid)
    assert child.pid not in children.alive_below(os.getpid())
    assert child.wait(WAIT_S) == 0


def test_a_process_is_described_by_its_number_and_its_command() -> None:
    with a_family() as parent:
        assert processes.describe(parent.pid).startswith(f"{parent.pid} {sys.executable} -c")


def test_the_guard_ends_everything_with_the_mark_when_its_command_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    folder.mkdir()
    with a_family({MARK: str(folder)}) as parent:
        assert len(marked(str(folder))) == 3
        guard = subprocess.Popen([sys.executable, "-m", "tradewind.local.guard", str(folder)], stdin=subprocess.PIPE)
        assert guard.stdin is not None
        guard.stdin.close()
        assert guard.wait(WAIT_S) == 0
        assert marked(str(folder)) == []
        assert parent.wait(WAIT_S) == -signal.SIGKILL
        assert not folder.exists()


AN_AGENT = """
from runtime import children
children.become_subreaper()
"""


def test_the_guard_ends_what_carries_no_mark_but_is_below_something_that_does(tmp_path: Path, escape: str) -> None:
    folder = tmp_path / "stack"
    folder.mkdir()
    source = AN_AGENT + escape_source(escape, 'print("escaped", flush=True); time.sleep(600)')
    environ = {**os.environ, MARK: str(folder)}
    with subprocess.Popen([sys.executable, "-c", source], env=environ, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None and agent.stdout.readline() == b"escaped\n"
        assert len(escaped(escape)) == 1
        execute(str(folder))
        assert agent.wait(WAIT_S) == -signal.SIGKILL
    assert escaped(escape) == []


def test_the_guard_leaves_other_stacks_alone(tmp_path: Path) -> None:
    with a_family({MARK: str(tmp_path / "other")}) as parent:
        folder = tmp_path / "stack"
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-m", "tradewind.local.guard", str(folder)], input=b"", check=True, timeout=WAIT_S
        )
        assert not children.is_dead(parent.pid)

"""A fork takes the place of the process that was started: environment, streams, end."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

from runtime import proc
from tests.conftest import eventually_blocking
from tests.e2e.traces import a_mark, carriers
from tests.host.agent import Agent
from tests.warm import Warm

STORE = (sys.executable, "-P", "-m", "controlplane.stores.server")


def start(warm: Warm, mark: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        STORE, env={**os.environ, **warm.environ, **mark}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_a_fork_speaks_for_the_process_and_ends_with_it(warm: Warm) -> None:
    mark = a_mark()
    with start(warm, mark) as stands:
        assert stands.stdout is not None
        assert stands.stdout.readline() == b'{"type":"warm"}\n'
        (fork,) = set(carriers(mark)) - {stands.pid}
        assert b"server.py" in b" ".join(proc.arguments(fork))
        stands.kill()
    eventually_blocking(lambda: not carriers(mark), what="the fork ends")


def test_the_process_ends_as_its_fork_ends(warm: Warm) -> None:
    mark = a_mark()
    with start(warm, mark) as stands:
        assert stands.stdin is not None and stands.stdout is not None
        stands.stdout.readline()
        stands.stdin.close()
        assert stands.wait(30) == 0
    with start(warm, mark) as stands:
        assert stands.stdout is not None
        stands.stdout.readline()
        (fork,) = set(carriers(mark)) - {stands.pid}
        os.kill(fork, signal.SIGKILL)
        assert stands.wait(30) == -signal.SIGKILL
    assert not carriers(mark)


def test_hosts_beside_each_other_keep_their_files(warm: Warm) -> None:
    """A fork that keeps sockets of the server closes them later, with the files of their numbers."""
    with ExitStack() as closing:
        agents = []
        for _ in range(3):
            agents.append(Agent(env={**os.environ, **warm.environ}))
            closing.callback(agents[-1].close)
        for agent in agents:
            agent.wait_for("hello")
            agent.finish(agent.fork(agent.script("print('trained')")))


def test_another_process_starts_as_always(warm: Warm) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        env={**os.environ, **warm.environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    assert shown.strip().isdigit()

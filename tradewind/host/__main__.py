"""The command `python -m tradewind.host --socket PATH`, or this file by its path, with any interpreter that has torch.

Started by its path, it needs no installation: it makes the package `tradewind` importable. It adds no folder to the
import path, so no module of Tradewind can hide a module of the user.
"""

import argparse
import importlib.util
import os
import platform
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from tradewind.host.connection import AgentConnection
    from tradewind.host.trainer import Newborn


def main() -> "Newborn | None":
    parser = argparse.ArgumentParser(prog="tradewind.host", description="Forks warm trainers for a worker-agent.")
    parser.add_argument("--socket", required=True, metavar="PATH", help="where the worker-agent listens")
    parser.add_argument(
        "--wait-s", type=float, default=1.0, metavar="SECONDS", help="how long to wait for the agent  [%(default)s]"
    )
    given = parser.parse_args()
    _take_only_the_package_along()
    _find_the_driver()
    sock = _connect(given.socket, given.wait_s)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _serve(sock)


def _find_the_driver() -> None:
    from tradewind.host.gpus import restart_with_driver

    restart_with_driver()


def _connect(path: str, wait_s: float) -> socket.socket:
    """Connects to the agent; waits, because in a pod the host may start before it."""
    until = time.monotonic() + wait_s
    # In a container, the kernel ignores signals without a handler for the first process.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(path)
        except OSError as error:
            sock.close()
            may_come = isinstance(error, FileNotFoundError | ConnectionRefusedError)
            if not may_come or time.monotonic() >= until:
                sys.exit(f"tradewind.host: cannot connect to the agent on {path}: {error}")
            time.sleep(0.05)
        else:
            return sock


def _serve(sock: socket.socket) -> "Newborn | None":
    from tradewind.host.connection import AgentConnection
    from tradewind.host.diagnosis import CHOOSE_ANOTHER
    from tradewind.host.gpus import why_unfit
    from tradewind.host.loop import Host
    from tradewind.host.warm import warm_up
    from tradewind.protocol import host as protocol

    agent = AgentConnection(sock)
    started = time.monotonic()
    try:
        torch = warm_up()
    except (ImportError, OSError) as error:
        _refuse(agent, f"{sys.executable} cannot import torch: {error}. {CHOOSE_ANOTHER}", is_unfit=False)
    unfit = why_unfit()
    if unfit is not None:
        _refuse(agent, unfit, is_unfit=True)
    warm_s = round(time.monotonic() - started, 3)
    agent.send(protocol.Hello(os.getpid(), platform.python_version(), torch, warm_s))
    agent.flush()
    sys.stdout.flush()
    return Host(agent).run()


def _refuse(agent: "AgentConnection", why: str, *, is_unfit: bool) -> NoReturn:
    from tradewind.protocol import host as protocol

    agent.send(protocol.Refused(why, is_unfit))
    agent.flush()
    sys.exit(f"tradewind.host: {why}")


def _take_only_the_package_along() -> None:
    if not sys.flags.safe_path:
        del sys.path[0]  # this file's folder, or with -m the current one: trainers add their own
    if not __package__:
        folder = Path(__file__).resolve().parent.parent
        spec = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py")
        if spec is None or spec.loader is None:
            sys.exit(f"tradewind.host: {folder} is not a package")
        package = importlib.util.module_from_spec(spec)
        sys.modules[folder.name] = package
        spec.loader.exec_module(package)


if __name__ == "__main__":
    newborn = main()
    if newborn is None:
        # Nothing is left to clean up, and unloading torch takes 0.1 s of the cores that other trainers use.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    from tradewind.host.trainer import become

    become(newborn)

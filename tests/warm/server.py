"""A process that imports torch once and forks hosts and stores: `server.py SOCKET`, until its standard input ends."""

import contextlib
import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PR_SET_PDEATHSIG = 1
FDS_MOST = 1024


@dataclass(frozen=True)
class Request:
    argv: list[str]
    env: dict[str, str]
    cwd: str


class Server:
    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ, lambda: sys.exit(0))
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def serve(self) -> Request:
        """Returns in each fork only, with what it becomes."""
        while True:
            for key, _ in self._selector.select():
                react: Callable[[], Request | None] = key.data
                request = react()
                if request is not None:
                    return request

    def _accept(self) -> Request | None:
        connection, _ = self._listener.accept()
        _, fds, _, _ = socket.recv_fds(connection, 1, 4)
        if not fds:  # the process ended before it asked
            connection.close()
            return None
        described, *streams = fds
        os.lseek(described, 0, os.SEEK_SET)
        with open(described) as file:  # noqa: PTH123
            request = Request(**json.load(file))
        us = os.getpid()
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != us:
                os._exit(1)
            os.setsid()
            for standard, stream in enumerate(streams):
                os.dup2(stream, standard)
            self._close(connection)
            return request
        for stream in streams:
            os.close(stream)
        ended = os.pidfd_open(pid)
        self._selector.register(connection, selectors.EVENT_READ, partial(self._kill, ended, connection))
        self._selector.register(ended, selectors.EVENT_READ, partial(self._reap, pid, ended, connection))
        return None

    def _close(self, connection: socket.socket) -> None:
        """Closes all files in a fork. A socket that is only forgotten would later close a file that has its number."""
        for key in self._selector.get_map().values():
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        connection.close()
        os.closerange(3, FDS_MOST)

    def _kill(self, ended: int, connection: socket.socket) -> None:
        """Ends the fork of a process that is gone."""
        if connection.fileno() >= 0:
            self._selector.unregister(connection)
            signal.pidfd_send_signal(ended, signal.SIGKILL)

    def _reap(self, pid: int, ended: int, connection: socket.socket) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._selector.unregister(ended)
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
        os.close(ended)
        with contextlib.suppress(OSError):  # the process that stood for it is gone
            connection.sendall(str(code).encode())
        connection.close()


def import_torch() -> None:
    """Imports what hosts and stores import; the first optimizer imports most."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data

    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    gc.collect()
    gc.freeze()  # otherwise the garbage collector of a fork would copy the pages that it shares with us


def take_on(request: Request) -> None:
    """Takes on arguments, environment and folder, also as `/proc` shows them."""
    os.environ.clear()
    os.environ.update(request.env)
    show_environment(request.env)
    os.chdir(request.cwd)
    sys.orig_argv[:] = request.argv
    sys.path[:0] = [entry for entry in request.env.get("PYTHONPATH", "").split(os.pathsep) if entry]


def show_environment(env: dict[str, str]) -> None:
    """Overwrites the memory of the first environment, which nothing reads any more but `/proc/PID/environ`."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    shown = b"".join(f"{name}={value}".encode() + b"\0" for name, value in env.items())
    room = end - start
    assert len(shown) < room, "more ROOM is needed"
    ctypes.memmove(start, shown.ljust(room, b"\0"), room)


import_torch()
server = Server(sys.argv[1])
print("warm", flush=True)
request = server.serve()
del server
take_on(request)
if request.argv[1].endswith("__main__.py"):
    sys.argv = request.argv[1:]
    # At the top level, as the host needs it: the interpreter itself ends its forks.
    exec(
        compile(Path(sys.argv[0]).read_bytes(), sys.argv[0], "exec"),
        {**globals(), "__file__": sys.argv[0], "__package__": None},
    )
else:
    runpy.run_module(request.argv[request.argv.index("-m") + 1], run_name="__main__", alter_sys=True)

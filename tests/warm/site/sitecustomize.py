"""Lets a fork of the warm server take the place of a host or a store; any other process starts as always."""

import os
import sys

HOST = "/tradewind/host/__main__.py"
STORE = "controlplane.stores.server"


def stand_for_a_fork(server: str) -> None:
    """Hands over arguments, environment, folder and standard streams; ends as the fork ends."""
    import json
    import signal
    import socket

    if STORE not in sys.orig_argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = os.memfd_create("request")
    text = json.dumps({"argv": sys.orig_argv, "env": dict(os.environ), "cwd": os.getcwd()})  # noqa: PTH109
    with open(request, "w", closefd=False) as file:
        file.write(text)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(server)
    socket.send_fds(connection, [b"."], [request, 0, 1, 2])
    code = int(connection.recv(16) or b"1")
    if code < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def is_ours() -> bool:
    return STORE in sys.orig_argv or any(word.endswith(HOST) for word in sys.orig_argv[1:2])


if os.environ.get("WARM_PREFIX") == sys.prefix and is_ours():
    stand_for_a_fork(os.environ["WARM_SOCKET"])

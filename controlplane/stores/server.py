"""The process that serves the TCPStores of one job; the only one of the control plane that imports torch.

Each generation has its own store on its own port: ranks with `env://` set the same keys in each world, and would read
the addresses of the previous world in an old store. The process ends when its stdin closes, so that a dead master
leaves no process behind.
"""

import contextlib
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import BinaryIO, assert_never

import msgspec
from torch._C._distributed_c10d import TCPStore

from controlplane.stores.protocol import Command, Failed, Met, Report, Start, Started, Waiting, Warm, Watch

CALL_TIMEOUT = timedelta(seconds=10)
DROP_AFTER_S = 2.0
"""Seconds before an old store is dropped. That is slow, so no start waits for it."""
LOOKS_IN_MEET = 4
LOOK_AT_MOST_EVERY_S = 0.05
LOOK_AT_LEAST_EVERY_S = 2.0
LOOKS_GROW = 1.5
ARRIVAL_KEY = "default_pg/0//cpu//0/{rank}"
"""Key that gloo sets for each rank in `init_process_group`, alone or beside another backend.

nccl alone does not show which ranks have come: rank 0 sets all its keys (`default_pg/0//cuda//<n>`)."""


class Server:
    def __init__(self, reports: BinaryIO) -> None:
        self._reports = reports
        self._speaking = threading.Lock()
        self._changing = threading.Lock()
        self._stores: dict[int, TCPStore] = {}
        self._last_port: int | None = None

    def serve(self, commands: Iterable[bytes]) -> None:
        self.tell(Warm())
        decoder = msgspec.json.Decoder(Command)
        for line in commands:
            command: Command = decoder.decode(line)
            match command:
                case Start():
                    self._start(command)
                case Watch():
                    self._watch(command)
                case _:
                    assert_never(command)

    def tell(self, report: Report) -> None:
        with self._speaking:
            self._reports.write(msgspec.json.encode(report) + b"\n")
            self._reports.flush()

    def _start(self, command: Start) -> None:
        try:
            store = self._open(command)
        except (OSError, RuntimeError) as error:
            self.tell(Failed(command.generation, str(error).partition("\n")[0]))
            return
        with self._changing:
            self._stores[command.generation] = store
        self.tell(Started(command.generation, store.port))
        later = threading.Timer(DROP_AFTER_S, self._drop_older_than, (command.generation,))
        later.daemon = True
        later.start()

    def _open(self, command: Start) -> TCPStore:
        listener = listen(command.host, ports_after(self._last_port, command.port_from, command.port_to))
        address, self._last_port = listener.getsockname()
        return TCPStore(
            host_name="127.0.0.1" if address == "0.0.0.0" else address,
            port=self._last_port,
            is_master=True,
            wait_for_workers=False,
            timeout=CALL_TIMEOUT,
            master_listen_fd=listener.detach(),
        )

    def _drop_older_than(self, generation: int) -> None:
        with self._changing:
            dropped = [self._stores.pop(known) for known in tuple(self._stores) if known < generation]
        dropped.clear()

    def _watch(self, command: Watch) -> None:
        name = f"watch-{command.generation}"
        threading.Thread(target=self._look, args=(command,), name=name, daemon=True).start()

    def _look(self, command: Watch) -> None:
        """Watches a store until all ranks have come or it is dropped. Uses its own client, because a client locks."""
        keys = {rank: ARRIVAL_KEY.format(rank=rank) for rank in range(command.world_size)}
        most_s = max(LOOK_AT_MOST_EVERY_S, min(command.meet_s / LOOKS_IN_MEET, LOOK_AT_LEAST_EVERY_S))
        every_s = LOOK_AT_MOST_EVERY_S
        due_s: float | None = None
        with contextlib.suppress(RuntimeError):
            client = self._client(command.generation)
            while self._serves(command.generation) and client is not None:
                if client.check(list(keys.values())):
                    self.tell(Met(command.generation))
                    return
                current = set(client.list_keys())
                waiting = tuple(rank for rank, key in keys.items() if key in current)
                missing = tuple(rank for rank, key in keys.items() if key not in current)
                now_s = time.monotonic()
                if waiting and due_s is None:
                    due_s = now_s + command.meet_s
                if missing and due_s is not None and now_s >= due_s:
                    due_s = now_s + command.meet_s
                    self.tell(Waiting(command.generation, waiting, missing))
                time.sleep(every_s)
                every_s = min(every_s * LOOKS_GROW, most_s)

    def _client(self, generation: int) -> TCPStore | None:
        with self._changing:
            store = self._stores.get(generation)
        if store is None:
            return None
        return TCPStore(store.host, store.port, is_master=False, wait_for_workers=False, timeout=CALL_TIMEOUT)

    def _serves(self, generation: int) -> bool:
        with self._changing:
            return generation in self._stores


def listen(host: str, ports: Iterable[int]) -> socket.socket:
    """Listens on the first free port. IPv4 only: the store asks a DNS server for the name of each IPv6 client."""
    problem = OSError("the range of ports is empty")
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1024)
        except OSError as error:
            listener.close()
            problem = error
        else:
            return listener
    raise OSError(f"no free port for a store on {host}: {problem}")


def ports_after(last: int | None, port_from: int, port_to: int) -> list[int]:
    """All ports of the range, beginning after the last one used, so that each is reused as late as possible.

    A late rank of an old generation must not find a new store at its address."""
    ports = list(range(port_from, port_to + 1))
    start = ports.index(last) + 1 if last in ports else random.randrange(len(ports)) if ports else 0
    return ports[start:] + ports[:start]


def main() -> None:
    # Output that a library prints must not mix with the reports.
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError):
        Server(reports).serve(sys.stdin.buffer)
    # Exits without closing the stores one by one, because no master waits for it.
    os._exit(0)


if __name__ == "__main__":
    main()

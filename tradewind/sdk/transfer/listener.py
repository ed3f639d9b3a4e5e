"""The port where a joining trainer takes the state: open at the worker's own address, while it joins, for its peers.

A connection counts once it has sent the token, which peers read in the store of the generation. Until then it may come
from the members' addresses only, has little time, and shares a few places with all others that have not sent it.
"""

import hmac
import ipaddress
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from tradewind.sdk.transfer.wire import Connection

INTRODUCTION_S = 5.0
"""Seconds in which a connection has to send the token."""
SPARE_PLACES: Final = 8
"""Connections without the token that are kept open beyond one for each rank."""
LOOK_UP_S: Final = 1.0
OUT_OF_SOCKETS_S: Final = 0.05

Admit = Callable[[Connection, dict[str, Any]], None]


class Listener:
    def __init__(self, address: str, peers: Iterable[str], world_size: int, admit: Admit) -> None:
        """`peers` are the addresses of the members; with none, the token alone decides."""
        self.token = secrets.token_hex(16)
        self._admit = admit
        self._peers = frozenset(ip for peer in peers for ip in _resolved(peer))
        self._places = threading.BoundedSemaphore(world_size + SPARE_PLACES)
        self._socket = _listening(address)
        self.port: int = self._socket.getsockname()[1]
        self._closed = False
        self._has_refused = False
        threading.Thread(target=self._accept, name="tradewind-receiver", daemon=True).start()

    def close(self) -> None:
        """Takes no more connections; those that were admitted stay."""
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        self._socket.settimeout(LOOK_UP_S)
        with self._socket:
            while not self._closed:
                try:
                    sock, source = self._socket.accept()
                except TimeoutError:
                    continue
                except OSError:
                    time.sleep(OUT_OF_SOCKETS_S)
                else:
                    self._welcome(sock, source[0])

    def _welcome(self, sock: socket.socket, source: str) -> None:
        is_peer = not self._peers or _normal(source) in self._peers
        if not is_peer:
            self._say_refused(source)
        if self._closed or not is_peer or not self._places.acquire(blocking=False):
            sock.close()
            return
        threading.Thread(target=self._hear, args=(Connection(sock),), name="tradewind-shard", daemon=True).start()

    def _say_refused(self, source: str) -> None:
        """Once: it may be a peer behind a network that changes addresses, and nothing else would show that."""
        if not self._has_refused:
            self._has_refused = True
            members = ", ".join(sorted(self._peers))
            why = f"no member of this world has that address ({members})"
            print(f"tradewind: refused a connection from {source}: {why}", file=sys.stderr)

    def _hear(self, connection: Connection) -> None:
        try:
            introduction = self._introduced(connection)
            if introduction is not None:
                self._admit(connection, introduction)
        finally:
            connection.close()

    def _introduced(self, connection: Connection) -> dict[str, Any] | None:
        """The first line of a connection if it has the token."""
        try:
            introduction = connection.receive_line(INTRODUCTION_S)
        except OSError:
            return None
        finally:
            self._places.release()
        known = hmac.compare_digest(str(introduction.get("token")).encode(), self.token.encode())
        return introduction if known else None


def _listening(address: str) -> socket.socket:
    family, _, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    try:
        return socket.create_server(place, family=family, backlog=128)
    except OSError as error:
        raise OSError(f"cannot listen at this worker's address {address} for the training state: {error}") from error


def _resolved(peer: str) -> set[str]:
    """Empty for a name that is not known here: such a peer would be refused."""
    try:
        return {_normal(str(place[0])) for *_, place in socket.getaddrinfo(peer, 0, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


def _normal(address: str) -> str:
    return str(ipaddress.ip_address(address.partition("%")[0]))

"""The listener of a joining trainer: a port at the worker's own address where peers send the state.

A connection is accepted once it has sent the token, which peers read from the store of the generation. Until then it
must come from a member's address and has a deadline, and the number of such connections is limited.
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
"""Seconds within which a connection must send the token."""
SPARE_PLACES: Final = 8
"""Maximum number of open connections without the token, beyond one for each rank."""
LOOK_UP_S: Final = 1.0
OUT_OF_SOCKETS_S: Final = 0.05

Admit = Callable[[Connection, dict[str, Any]], None]


class Listener:
    def __init__(self, address: str, peers: Iterable[str], world_size: int, admit: Admit) -> None:
        """`peers` are the addresses of the members; if empty, only the token is checked."""
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
        """Stops listening; admitted connections stay open."""
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
        """Prints the first refusal: it may be a peer behind a network that changes addresses."""
        if not self._has_refused:
            self._has_refused = True
            print(refused(source, self._peers), file=sys.stderr)

    def _hear(self, connection: Connection) -> None:
        try:
            introduction = self._introduced(connection)
            if introduction is not None:
                self._admit(connection, introduction)
        finally:
            connection.close()

    def _introduced(self, connection: Connection) -> dict[str, Any] | None:
        """Returns the first line of a connection if it has the token."""
        try:
            introduction = connection.receive_line(INTRODUCTION_S)
        except OSError:
            return None
        finally:
            self._places.release()
        known = hmac.compare_digest(str(introduction.get("token")).encode(), self.token.encode())
        return introduction if known else None


def refused(source: str, members: Iterable[str]) -> str:
    why = f"no member of this world has this address (members: {', '.join(sorted(members))})"
    return f"tradewind: refused a connection from {source}: {why}"


def _listening(address: str) -> socket.socket:
    family, _, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    try:
        return socket.create_server(place, family=family, backlog=128)
    except OSError as error:
        raise OSError(f"cannot listen for the training state at this worker's address {address}: {error}") from error


def _resolved(peer: str) -> set[str]:
    """The IP addresses of a peer; empty for a name that does not resolve, so that the peer is refused."""
    try:
        return {_normal(str(place[0])) for *_, place in socket.getaddrinfo(peer, 0, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


def _normal(address: str) -> str:
    return str(ipaddress.ip_address(address.partition("%")[0]))

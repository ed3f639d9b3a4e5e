"""Whether a process at the other end of a Unix socket could run, as the kernel sees it.

A trainer that has to wait for a core cannot say that it lives; the kernel can say it for it.
"""

import asyncio
import socket
import struct
from pathlib import Path
from typing import Final

_ENDED_OR_STOPPED: Final = frozenset("TtZXx")


def peer_of(transport: asyncio.BaseTransport) -> int | None:
    """Its pid as this process knows it; None if it lives where this process cannot see it."""
    peer = transport.get_extra_info("socket")
    if peer is None:
        return None
    pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid or None


def runs(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].strip()[:1] not in _ENDED_OR_STOPPED

"""Senders, receivers and foreign connections for tests of transfers, with real sockets and tensors."""

import json
import socket
from contextlib import ExitStack

import torch
from torch import nn

from tests.conftest import eventually_blocking
from tests.sdk.states import Rank, fused_adam
from tradewind.sdk.groups.group import Destination
from tradewind.sdk.transfer.receiver import Receiver, Snapshot
from tradewind.sdk.transfer.sender import Streamer, StreamJob

LONG_S = 30.0
LOOPBACK = "127.0.0.1"


def a_large_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(300, 500), nn.BatchNorm1d(500), nn.ReLU(), nn.Linear(500, 300))


class Listening(Receiver):
    """A receiver that listens on loopback."""

    def __init__(self, silence_s: float, peers: tuple[str, ...] = (LOOPBACK,), world_size: int = 2) -> None:
        super().__init__(silence_s=silence_s)
        self.port, self.token = self.listen(5, LOOPBACK, peers, world_size)

    def destination(self, source: str = "") -> Destination:
        return Destination((LOOPBACK, self.port), self.token, source)


class Survivor:
    def __init__(self, streamer: Streamer, fingerprints: dict[int, int]) -> None:
        self.rank = Rank(1, fused_adam, a_large_model(1)).steps(10, 11)
        self.streamer = streamer
        self.fingerprints = fingerprints

    def job(self, receiver: Listening, shard: int = 0, of: int = 1, generation: int = 5, step: int = 2) -> StreamJob:
        header = self.rank.state.header() if shard == 0 else None
        return StreamJob(receiver.destination(), generation, step, shard, of, self.rank.state, header)

    def stream(self, receiver: Listening, shard: int = 0, of: int = 1, generation: int = 5, step: int = 2) -> StreamJob:
        job = self.job(receiver, shard, of, generation, step)
        self.streamer.offer(job)
        return job


class Stage:
    """Makes survivors and receivers, and closes them."""

    def __init__(self, closing: ExitStack) -> None:
        self._closing = closing

    def receiver(
        self, generation: int = 5, silence_s: float = LONG_S, peers: tuple[str, ...] = (LOOPBACK,)
    ) -> Listening:
        receiver = Listening(silence_s, peers)
        self._closing.callback(receiver.close)
        receiver.restart(generation)
        return receiver

    def survivor(self) -> Survivor:
        fingerprints: dict[int, int] = {}
        streamer = Streamer(fingerprints)
        self._closing.callback(streamer.close)
        return Survivor(streamer, fingerprints)

    def foreign(self, receiver: Listening, *lines: object, source: str = LOOPBACK) -> socket.socket:
        sock = socket.create_connection((LOOPBACK, receiver.port), LONG_S, (source, 0))
        self._closing.callback(sock.close)
        sock.sendall(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
        return sock


def received(receiver: Receiver) -> Snapshot:
    """Waits for the state. If one attempt fails, it waits for the next."""
    snapshots: list[Snapshot] = []

    def comes() -> bool:
        snapshot = receiver.wait(0.01)
        snapshots.extend([snapshot] if snapshot is not None else [])
        return snapshot is not None

    eventually_blocking(comes, what="the state came")
    return snapshots[0]


def loaded(snapshot: Snapshot) -> Rank:
    joining_rank = Rank(2, fused_adam, a_large_model(2))
    joining_rank.state.load(snapshot.header, snapshot.data)
    return joining_rank


def was_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def introduction(receiver: Listening) -> dict[str, str]:
    return {"token": receiver.token}


def a_shard(shard: int = 0, of: int = 2, generation: int = 5, step: int = 2, nbytes: int = 1000) -> dict[str, int]:
    return {
        "generation": generation,
        "step": step,
        "shard": shard,
        "of": of,
        "nbytes": nbytes,
        "header_bytes": 0,
    }

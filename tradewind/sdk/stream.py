"""How the state gets to a joiner while the others go on training.

At the joiner:
    receiver = Receiver()
    port, token = receiver.listen(generation, address, peers, world_size)  # survivors need both
    receiver.restart(generation)                 # when it is in that world
    snapshot = receiver.wait(timeout_s)          # of the state before step snapshot.step; receiver.failed says why not
    state.load(snapshot.header, snapshot.data)   # then it applies the sums it kept, and when it is level at step k:
    receiver.ask_admission(k, state.fingerprint())
    receiver.wait_admission(timeout_s)           # or admitted(), admission; UNKNOWN: ask again
    receiver.stop_listening()                    # when it has a share

At each survivor:
    streamer = Streamer(fingerprints)            # at the start: its thread must not be started while training
    streamer.prepare(address, token, nbytes, of) # ahead of the switch: connects; both sides make memory ready
    job = StreamJob(address, token, generation, step, shard, of, state, header=state.header() if shard == 0 else None)
    streamer.offer(job)                          # at the switch; returns at once
    job.copied.wait(timeout_s) or job.abandon()  # before the next optimizer step
    fingerprints[k] = state.fingerprint()        # after each step, while somebody joins

One thread copies, which is fast; each joiner has a thread that connects, sends and answers, started by the copying
thread. So a slow joiner delays neither training nor the copy for another joiner.
"""

import queue
import threading
from collections.abc import Mapping

from tradewind.sdk.raw import Staging
from tradewind.sdk.receiver import Admission, Receiver, Snapshot
from tradewind.sdk.stream_link import Address, End, Link, Prepare, Send, Source, StreamJob

__all__ = ["Address", "Admission", "Receiver", "Snapshot", "Source", "StreamJob", "Streamer"]

MOST_LINKS = 256


class Streamer:
    def __init__(self, fingerprints: Mapping[int, int]) -> None:
        self._fingerprints = fingerprints
        self._inbox: queue.SimpleQueue[Prepare | StreamJob | End] = queue.SimpleQueue()
        self._links: list[Link] = []
        self._thread = threading.Thread(target=self._run, name="tradewind-streamer", daemon=True)
        self._thread.start()

    def prepare(self, address: Address, token: str, nbytes: int, of: int, source: str = "") -> None:
        """`nbytes` is that of the whole state, which so many will send."""
        self._inbox.put(Prepare(address, token, nbytes, of, source))

    def offer(self, job: StreamJob) -> None:
        self._inbox.put(job)

    def close(self) -> None:
        """Ends the threads; what is being sent is cut off."""
        self._inbox.put(End())
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            match self._inbox.get():
                case Prepare(address, token, source=source) as prepare:
                    link = self._prepared(address, token) or self._linked(address, token, source)
                    if link is not None:
                        link.put(prepare)
                case StreamJob() as job:
                    self._stream(job)
                case End():
                    break
        for link in self._links:
            link.end()

    def _stream(self, job: StreamJob) -> None:
        """Copies before anything else: starting a thread may take longer than the copy that training waits for."""
        link = self._prepared(job.address, job.token)
        try:
            nbytes = job.state.nbytes()
            shard_nbytes = -(-nbytes // job.of)
            staging = link.staging(shard_nbytes) if link is not None else Staging(shard_nbytes)
            data = job.state.copy_shard(job.shard, job.of, staging)
        except (RuntimeError, ValueError, MemoryError) as error:
            job.failed(f"could not copy shard {job.shard} of {job.of}: {error}")
            return
        if job.abandoned:
            job.failed("abandoned")
            return
        job.copied.set()
        link = link or self._linked(job.address, job.token, job.source)
        if link is None or not link.put(Send(job, nbytes, data)):
            job.failed(f"no connection is left for {job.address[0]}:{job.address[1]}")

    def _prepared(self, address: Address, token: str) -> Link | None:
        return next((link for link in self._links if link.free_for(address, token)), None)

    def _linked(self, address: Address, token: str, source: str) -> Link | None:
        self._links = [link for link in self._links if not link.ended]
        if len(self._links) >= MOST_LINKS:
            return None
        link = Link(address, token, self._fingerprints, source)
        self._links.append(link)
        return link

"""Stands in for a worker-agent: joins, sends heartbeats, leaves on command. Its environment can make it misbehave."""

import argparse
import asyncio
import os
import secrets
import subprocess
import sys

from messages import subjects
from messages.clusters import Answer
from messages.codec import Received
from messages.ids import ClusterName, JobName, WorkerId
from messages.workers import StopWorker, WorkerHeartbeat, WorkerLeft, WorkerPhase, WorkerStatus
from runtime import children
from runtime.bus import Bus, BusSettings
from runtime.process import Stop, run

HEARTBEAT_EVERY_S = 0.2
LAST_WORDS = "there is no such module"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--uid", required=True)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--run-dir", default="")
    parser.add_argument("--python")
    return parser.parse_args()


async def work(given: argparse.Namespace, stop: Stop) -> int:
    worker = WorkerId(f"{given.uid}-{secrets.token_hex(2)}")
    cluster = ClusterName(given.cluster)
    bus = await Bus.connect(
        BusSettings(url=os.environ["TRADEWIND_NATS_URL"], name=f"worker/{worker}", connect_timeout_s=30.0)
    )

    def status(seq: int, phase: WorkerPhase) -> WorkerStatus:
        return WorkerStatus(worker, cluster, JobName(given.job), seq, phase, slots=given.slots, pid=os.getpid())

    async def obey(_subject: str, received: Received) -> Answer:
        if isinstance(received.message, StopWorker):
            stop.ask(received.message.why)
        return Answer(ok=True)

    await bus.serve(subjects.worker_command(cluster, worker), obey)
    seq = 0
    while not stop.asked.is_set() or "STAND_IN_STAYS" in os.environ:
        seq += 1
        bus.publish(subjects.worker_heartbeat(cluster, worker), WorkerHeartbeat(status(seq, WorkerPhase.IDLE)))
        try:
            async with asyncio.timeout(HEARTBEAT_EVERY_S):
                await stop.forced.wait()
        except TimeoutError:
            continue
    left = WorkerLeft(status(seq + 1, WorkerPhase.LEAVING), "told to")
    bus.publish(subjects.worker_fact(cluster, worker, "left"), left)
    await bus.drain(2.0)
    return 0


if __name__ == "__main__":
    if "STAND_IN_DIES" in os.environ:
        print(LAST_WORDS, file=sys.stderr)
        sys.exit(3)
    if "STAND_IN_HAS_CHILD" in os.environ:
        subprocess.Popen(["sleep", "300"], start_new_session=True)
    if "STAND_IN_RUNS" in os.environ:
        children.become_subreaper()  # like every worker-agent
        exec(os.environ["STAND_IN_RUNS"])
    given = options()
    sys.exit(run(lambda stop: work(given, stop), drain_s=600.0, force_s=600.0))

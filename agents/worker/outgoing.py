"""Messages of a worker-agent to the bus: heartbeats, facts, notices, progress and log lines."""

import asyncio

from agents.worker.effects import TellFact
from agents.worker.outbox import LogOutbox
from agents.worker.progress import REPORT_EVERY_S, ProgressBook
from agents.worker.state import WorkerIdentity
from agents.worker.translation import fact_message
from messages import subjects
from messages.envelope import Message
from messages.workers import WorkerHeartbeat, WorkerNoticed, WorkerStatus
from runtime.bus import Bus


class Outgoing:
    def __init__(self, identity: WorkerIdentity, bus: Bus) -> None:
        self.log_lines = LogOutbox(
            identity.job,
            identity.worker,
            lambda subject, lines, message_id: bus.publish_durable(subject, lines, message_id=message_id),
        )
        self.progress = ProgressBook(identity.job, identity.worker)
        self._identity = identity
        self._bus = bus

    def heartbeat(self, status: WorkerStatus) -> None:
        subject = subjects.worker_heartbeat(self._identity.cluster, self._identity.worker)
        self._bus.publish(subject, WorkerHeartbeat(status))

    def fact(self, sent: TellFact) -> None:
        self._publish_own(sent.fact, fact_message(sent))

    def notice(self, remaining_s: float, source: str) -> None:
        identity = self._identity
        self._publish_own("notice", WorkerNoticed(identity.worker, identity.job, remaining_s, source))

    def flush_progress(self) -> None:
        subject = subjects.worker_progress(self._identity.cluster, self._identity.worker)
        for progress in self.progress.take():
            self._bus.publish(subject, progress)

    async def report_progress(self) -> None:
        """Publishes progress once a second, until cancelled."""
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.flush_progress()

    def _publish_own(self, fact: str, message: Message) -> None:
        self._bus.publish(subjects.worker_fact(self._identity.cluster, self._identity.worker, fact), message)

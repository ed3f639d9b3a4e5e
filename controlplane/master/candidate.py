"""A master process, which leads while it holds the lease and is a standby otherwise."""

import asyncio
import socket

from msgspec import structs

from controlplane.jobs.backup import JobBackup
from controlplane.lease.keeper import Leadership, Onlooker, hold
from controlplane.lease.state import LeaseSettings
from controlplane.master import leading
from controlplane.master.settings import MasterSettings, advertised_url
from controlplane.master.standby import StandbyServer
from messages import subjects
from messages.records import LeaseRecord
from runtime.bus import Bus
from runtime.process import Stop
from runtime.waiting import first_of

QUIET_S = 1.0
"""Seconds beyond the lease's life that requests wait for this master to lead, unless another master leads."""


class Candidate(Onlooker):
    def __init__(self, bus: Bus, listener: socket.socket, settings: MasterSettings, stop: Stop) -> None:
        self.idle = asyncio.Event()
        """Set while the work of a leader does not run."""
        self.idle.set()
        self._leading = asyncio.Event()
        self._other_leads = asyncio.Event()
        self._bus = bus
        self._listener = listener
        self._settings = settings
        self._stop = stop
        self._backup = JobBackup()
        self._leader: LeaseRecord | None = None

    async def run(self) -> None:
        """Runs until cancelled, then releases the lease."""
        bucket = await self._bus.bucket(subjects.STATE_BUCKET, timeout_s=leading.PATIENCE_S)
        bus = self._settings.bus
        lease_bus = structs.replace(bus, name=f"lease/{bus.name}", connect_timeout_s=leading.PATIENCE_S)
        url = advertised_url(self._settings, self._listener.getsockname()[1])
        lease = LeaseSettings(ttl_s=self._settings.lease_s)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._backup.run(bucket), name="backup")
            tasks.create_task(self._stand_by(), name="standby")
            holding = hold(lease_bus, bus.name, self._lead, url=url, settings=lease, onlooker=self)
            tasks.create_task(holding, name="lease")

    async def _lead(self, leadership: Leadership) -> None:
        self.idle.clear()
        self._leading.set()
        try:
            await leading.serve(self._settings, self._listener, leadership, self._backup, self._stop)
        finally:
            self._leading.clear()
            self.idle.set()
        # The process was asked to end: the task that waits for `idle` cancels this, which releases the lease.
        await asyncio.Event().wait()

    async def _stand_by(self) -> None:
        while True:
            await first_of(self._leading, self._other_leads, timeout_s=self._settings.lease_s + QUIET_S)
            if not self._leading.is_set():
                await self._refuse_requests()
            await self.idle.wait()

    async def _refuse_requests(self) -> None:
        """Answers requests as a standby until this master leads."""
        token = self._settings.api_token
        async with StandbyServer(self._listener.dup(), token, lambda: self._leader, lambda: self._bus.connected):
            await self._leading.wait()

    def saw(self, holder: LeaseRecord | None, *, ours: bool) -> None:
        """Notes the holder. Another master lives if it is seen to write the key twice."""
        if holder is None or ours or holder != self._leader:
            self._other_leads.clear()
        else:
            self._other_leads.set()
        self._leader = holder
        self._backup.see_leader(other=holder is not None and not ours)

    def forgotten(self) -> None:
        self._leader = None
        self._other_leads.clear()
        self._backup.bus_forgot()

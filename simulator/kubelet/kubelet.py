"""The agent of one node: runs the pods placed on it, and ends them in order when the node shuts down."""

import asyncio
import contextlib
import signal

from simulator.kubelet.addresses import Addresses
from simulator.kubelet.pod import Node, PodRunner
from simulator.kubelet.volumes import remove_folder
from simulator.kubernetes.history import Change, ChangeType
from simulator.kubernetes.objects import Obj, is_daemon, is_deleting, is_finished, key_of, meta, spec_of, uid_of
from simulator.kubernetes.pods import is_critical
from simulator.kubernetes.resources import PODS
from simulator.kubernetes.store import DeleteOptions

FORCED_GRACE_S = 1.0
"""Grace period of a pod that left the API without waiting for its node."""
SHUTDOWN_REASON = "Terminated"
SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."
_LEAST_HOUSEKEEPING_S = 0.2
_MOST_HOUSEKEEPING_S = 30.0


class Kubelet:
    def __init__(self, node: Node, addresses: Addresses) -> None:
        self.node = node
        self._addresses = addresses
        self._runners: dict[str, PodRunner] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._ending = asyncio.Event()
        self._refuses = False
        self._frozen = False

    async def run(self) -> None:
        """Runs until the node is gone; then none of its processes is left."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                keeper = tasks.create_task(self._keep_house(), name=f"housekeeping/{self.node.facts.name}")
                for pod in self.node.server.store.all(PODS):
                    if spec_of(pod).get("nodeName") == self.node.facts.name:
                        self._see(pod)
                await self._ending.wait()
                keeper.cancel()
                for runner in self._runners.values():
                    runner.gone.set()
        finally:
            self._tasks = None
            await asyncio.to_thread(remove_folder, self.node.facts.folder)

    def on_change(self, change: Change) -> None:
        """Handles a change of a pod of this node."""
        if self._frozen:
            return
        uid = uid_of(change.object)
        if change.type is not ChangeType.DELETED:
            self._see(change.object)
        elif uid in self._runners:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        """Ends a pod that is no longer in the API."""
        self._runners[uid].end(FORCED_GRACE_S)
        self._runners[uid].gone.set()

    @property
    def pods(self) -> list[Obj]:
        return [runner.described() for runner in self._runners.values() if runner.pids]

    async def shut_down(self, ordinary_s: float, critical_s: float) -> None:
        """Ends all pods, as a machine that powers off: ordinary pods first, then critical ones."""
        self._refuses = True
        for are_critical, window_s in ((False, ordinary_s), (True, critical_s)):
            ending = [each for each in self._runners.values() if is_critical(each.pod) is are_critical]
            for runner in ending:
                grace_s = float(spec_of(runner.pod).get("terminationGracePeriodSeconds", 30))
                runner.end(min(grace_s, window_s), SHUTDOWN_REASON, SHUTDOWN_MESSAGE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(window_s + FORCED_GRACE_S):
                    await self._until_idle(ending)

    async def freeze(self) -> None:
        """Makes the machine hang: agent and programs stop."""
        self._frozen = True
        await self._signal_all(signal.SIGSTOP)

    async def thaw(self) -> None:
        """Continues agent and programs, and handles the changes that were missed."""
        self._frozen = False
        await self._signal_all(signal.SIGCONT)
        pods = {uid_of(pod): pod for pod in self.node.server.store.all(PODS)}
        for uid in self._runners.keys() - pods.keys():
            self._forget(uid)
        for pod in pods.values():
            if spec_of(pod).get("nodeName") == self.node.facts.name:
                self._see(pod)

    async def _signal_all(self, number: signal.Signals) -> None:
        marks = {mark for runner in self._runners.values() if runner.pids for mark in runner.marks}
        await self.node.sweeper.signal_all(marks, number)

    async def die(self) -> None:
        """Ends the machine at once: kills all programs and reports nothing."""
        self._refuses = True
        for runner in self._runners.values():
            runner.lose()
        leaders = [pid for runner in self._runners.values() for pid in runner.pids.values()]
        marks = {mark for runner in self._runners.values() if runner.pids for mark in runner.marks}
        await self.node.sweeper.kill_all(marks, leaders)
        self._ending.set()

    async def _until_idle(self, runners: list[PodRunner]) -> None:
        for runner in runners:
            await runner.done.wait()

    def _see(self, pod: Obj) -> None:
        runner = self._runners.get(uid_of(pod))
        if runner is None:
            if not is_finished(pod) and self._tasks is not None and self._has_room_for(pod):
                self._take_on(pod)
        elif is_deleting(pod):
            runner.end(float(meta(pod).get("deletionGracePeriodSeconds") or 0))

    def _has_room_for(self, pod: Obj) -> bool:
        """False while the node ends. A refused daemon pod would be re-created at once, in an endless loop."""
        return not self._ending.is_set() and not (self._refuses and is_daemon(pod))

    def _take_on(self, pod: Obj) -> None:
        assert self._tasks is not None  # pods arrive only while it runs
        on_host = bool(spec_of(pod).get("hostNetwork"))
        address = self.node.facts.host_ip if on_host else self._addresses.take()
        runner = PodRunner(pod, address, self.node)
        self._runners[runner.uid] = runner
        if is_deleting(pod):
            runner.end(0.0)
        elif self._refuses:
            runner.end(0.0, SHUTDOWN_REASON, "Pod was rejected as the node is shutting down.")
        self._tasks.create_task(self._attend(runner), name=f"pod/{key_of(pod).name}")

    async def _attend(self, runner: PodRunner) -> None:
        store = self.node.server.store
        try:
            await runner.run()
            runner.done.set()
            current = store.find(PODS, runner.key)
            if current is not None and uid_of(current) == runner.uid and is_deleting(current) and not runner.is_lost:
                store.delete(PODS, runner.key, DeleteOptions(grace_s=0, uid=runner.uid))
            await runner.gone.wait()
        finally:
            runner.done.set()
            if runner.pids:
                await self.node.sweeper.kill_all(runner.marks, runner.pids.values())
            del self._runners[runner.uid]
            self._addresses.give_back(runner.pod_ip)
            living = {uid_of(pod) for pod in store.all(PODS)}
            await asyncio.to_thread(self._tidy, runner, living)

    def _tidy(self, runner: PodRunner, living: set[str]) -> None:
        remove_folder(runner.folder)
        self.node.logs.forget_old(living)

    async def _keep_house(self) -> None:
        """Replaces tokens before they expire, and limits the size of logs."""
        pause_s = min(_MOST_HOUSEKEEPING_S, max(_LEAST_HOUSEKEEPING_S, self.node.options.token_s / 3))
        while True:
            await asyncio.sleep(pause_s)
            for runner in self._runners.values():
                runner.renew_token()
                runner.trim_logs()

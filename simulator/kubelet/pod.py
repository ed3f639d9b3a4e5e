"""Runs one pod on its node, from its first folder to the end of its last process."""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from runtime import children
from runtime.clock import Clock
from simulator.accounts import Accounts
from simulator.kubelet import records
from simulator.kubelet.facts import NodeFacts, RunOptions, TokenSource
from simulator.kubelet.images import PullFailed, back_off_state, pull_failure, runtime_of
from simulator.kubelet.janitor import RUN_MARK
from simulator.kubelet.launch import CannotLaunch, Launch, Surroundings, launch_of
from simulator.kubelet.logs import LogFolder
from simulator.kubelet.processes import MARK, Sweeper
from simulator.kubelet.records import ContainerRecord, Ended, PodFacts, Running, Waiting
from simulator.kubelet.volumes import (
    ACCOUNT_FOLDER,
    KUBECONFIG,
    account_of,
    make_volumes,
    mounts_of,
    write_account,
    write_token,
)
from simulator.kubernetes.events import record_event
from simulator.kubernetes.objects import Key, Obj, key_of, meta, spec_of, uid_of
from simulator.kubernetes.resources import CONFIG_MAPS, PODS, SECRETS
from simulator.kubernetes.server import ApiServer

_RETRY_FIRST_S = 0.1
_RETRY_MOST_S = 2.0
_CANNOT_START = 128
_KILLED = 137
_TRIED_AGAIN = ("CreateContainerConfigError",)
_SYNC_SHARE = 0.1
"""Share of a pull's backoff after which the kubelet reports a backoff."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a pod needs from its node."""

    facts: NodeFacts
    options: RunOptions
    server: ApiServer
    clock: Clock
    logs: LogFolder
    new_token: TokenSource
    sweeper: Sweeper
    accounts: Accounts


class PodRunner:
    def __init__(self, pod: Obj, pod_ip: str, node: Node) -> None:
        self.pod = pod
        self.uid = uid_of(pod)
        self.key = key_of(pod)
        self.pod_ip = pod_ip
        self.folder = node.options.pods_folder / self.uid[:8]
        self.gone = asyncio.Event()
        """Set when the pod is no longer in the API."""
        self.done = asyncio.Event()
        """Set when none of its processes runs."""
        self.is_lost = False
        self._node = node
        self._records = {record.name: record for record in records.new_records(pod)}
        self._facts = PodFacts(pod_ip, node.facts.host_ip, node.clock.wall_s())
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._volumes: dict[str, Path] = {}
        self._asked = asyncio.Event()
        self._changed = asyncio.Event()
        self._kill_at_s = 0.0

    @property
    def pids(self) -> dict[str, int]:
        """Pids of the running containers."""
        return {name: process.pid for name, process in self._processes.items()}

    @property
    def marks(self) -> set[str]:
        return {record.id for record in self._records.values()}

    async def run(self) -> None:
        """Runs until all containers have ended for good."""
        async with asyncio.TaskGroup() as tasks:
            ender = tasks.create_task(self._end_when_asked(), name=f"pod-end/{self.key.name}")
            await self._live()
            ender.cancel()
        self._close()

    def end(self, grace_s: float, reason: str = "", message: str = "") -> None:
        """Sends SIGTERM now and SIGKILL after the grace period. A second call can only shorten the period."""
        at_s = self._node.clock.monotonic_s() + grace_s
        if reason and not self._facts.ended_reason and not self._asked.is_set():
            self._facts = replace(self._facts, ended_reason=reason, ended_message=message)
        self._kill_at_s = min(self._kill_at_s, at_s) if self._asked.is_set() else at_s
        self._asked.set()
        self._changed.set()

    def lose(self) -> None:
        """Ends the pod of a lost node: without grace period, without reports."""
        self.is_lost = True
        self.end(0.0)

    def renew_token(self) -> None:
        holder = account_of(self.pod, self._node.server.store)
        if holder is not None and (self.folder / ACCOUNT_FOLDER).is_dir():
            write_token(self.folder, self._node.new_token(holder))

    def trim_logs(self) -> None:
        for record in self._records.values():
            path = self._node.logs.file(self.pod, record.name, record.restarts)
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size > self._node.options.log_bytes:
                    os.truncate(path, 0)

    async def _live(self) -> None:
        self._publish()
        if not await self._prepared():
            return
        spec = spec_of(self.pod)
        for container in spec.get("initContainers") or []:
            await self._keep(container)
            if not self._records[container["name"]].succeeded:
                return
        async with asyncio.TaskGroup() as tasks:
            for container in spec["containers"]:
                name = f"container/{self.key.name}/{container['name']}"
                tasks.create_task(self._keep(container), name=name)

    async def _prepared(self) -> bool:
        """Creates the folders of all volumes; retries while a source is missing. False if the pod must end first."""
        pause_s = _RETRY_FIRST_S
        while not self._asked.is_set():
            try:
                self._make_folders()
            except CannotLaunch as problem:
                self._tell(problem.reason, str(problem), is_warning=True)
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _RETRY_MOST_S)
            else:
                return True
        return False

    def _make_folders(self) -> None:
        node = self._node
        for record in self._records.values():
            self._scratch(record.name).mkdir(parents=True, exist_ok=True)
        around = self._surroundings({}, self.folder, {})
        self._volumes = make_volumes(self.pod, self.folder, node.facts.folder, around)
        holder = account_of(self.pod, node.server.store)
        if holder is not None:
            options = node.options
            write_account(self.folder, self.pod, options.cluster, options.endpoint, node.new_token(holder))

    async def _keep(self, container: Obj) -> None:
        """Runs a container, and restarts it by its policy, until it has ended for good."""
        name, options = container["name"], self._node.options
        policy = spec_of(self.pod).get("restartPolicy", records.ALWAYS)
        failures = 0
        while not self._asked.is_set():
            await self._pull(container)
            if self._asked.is_set():
                return
            ended = await self._run_once(container)
            if ended is None:
                continue
            again = records.restarts(policy, ended.code, is_init=self._records[name].is_init)
            again = again and not self._asked.is_set()
            self._set(name, self._records[name].ended(ended, will_restart=again))
            if not again:
                return
            if ended.finished_s - ended.started_s >= options.crash_forgiven_s:
                failures = 0
            wait_s = records.backoff_s(failures, options.crash_backoff_s, options.crash_backoff_most_s)
            failures += 1
            if wait_s > 0:
                text = f"back-off {wait_s:g}s restarting failed container={name} pod={self.key.name}"
                self._set(name, self._records[name].backing_off("CrashLoopBackOff", text))
                self._tell("BackOff", text, is_warning=True)
            await self._pause(wait_s)
            if not self._asked.is_set():
                record = self._records[name]
                last = record.state if isinstance(record.state, Ended) else record.last
                self._set(name, replace(record, restarts=record.restarts + 1, last=last, state=Waiting()), quietly=True)

    async def _pull(self, container: Obj) -> None:
        """Waits until the image is pulled or the pod ends. A failed pull is retried with backoff."""
        options, image, failures = self._node.options, container["image"], 0
        while not self._asked.is_set() and (failed := self._pull_failure(image)) is not None:
            failures += 1
            wait_s = records.backoff_s(failures, options.pull_backoff_s, options.pull_backoff_most_s)
            self._wait_for_image(container, failed)
            self._tell("Failed", f'Failed to pull image "{image}": {failed.message}', is_warning=True)
            await self._pause(wait_s * _SYNC_SHARE)
            if failed.reason == "ErrImagePull" and not self._asked.is_set():
                self._wait_for_image(container, back_off_state(image, failed))
                self._tell("BackOff", f'Back-off pulling image "{image}"')
            await self._pause(wait_s * (1 - _SYNC_SHARE))

    def _pull_failure(self, image: str) -> PullFailed | None:
        pull, account = runtime_of(image, self._node.options.images).pull, self._node.facts.service_account
        return pull_failure(image, pull, account, self._node.accounts.roleless)

    def _wait_for_image(self, container: Obj, failed: PullFailed) -> None:
        name = container["name"]
        self._set(name, self._records[name].backing_off(failed.reason, failed.message))

    async def _run_once(self, container: Obj) -> Ended | None:
        """Runs a container once; returns how it ended, or None if it cannot start yet."""
        name, clock = container["name"], self._node.clock
        record = self._records[name]
        started_s = clock.wall_s()
        try:
            process = await self._start(container, record)
        except CannotLaunch as problem:
            if problem.reason not in _TRIED_AGAIN:
                return Ended(_CANNOT_START, problem.reason, started_s, clock.wall_s(), str(problem))
            self._set(name, record.backing_off(problem.reason, str(problem)))
            self._tell("Failed", str(problem), is_warning=True)
            await self._pause(min(_RETRY_MOST_S, self._node.options.crash_backoff_s))
            return None
        self._processes[name] = process
        self._changed.set()
        self._set(name, replace(record, state=Running(started_s)))
        self._tell("Started", f"Started container {name}")
        code = await process.wait()
        finished_s = clock.wall_s()
        await self._node.sweeper.kill_all({record.id})
        del self._processes[name]
        self._changed.set()
        return records.ended(code, started_s, finished_s)

    async def _start(self, container: Obj, record: ContainerRecord) -> asyncio.subprocess.Process:
        options = self._node.options
        has_account = (self.folder / ACCOUNT_FOLDER).is_dir()
        mounts = mounts_of(container, self._volumes, self.folder / ACCOUNT_FOLDER if has_account else None)
        added = {
            MARK: record.id,
            RUN_MARK: options.run_mark,
            **({"KUBECONFIG": str(self.folder / KUBECONFIG)} if has_account else {}),
        }
        around = self._surroundings(mounts, self._scratch(record.name), added)
        launch = launch_of(self.pod, container, runtime_of(container["image"], options.images), around)
        return await self._spawn(launch, self._node.logs.new_file(self.pod, record.name, record.restarts))

    async def _spawn(self, launch: Launch, log: Path) -> asyncio.subprocess.Process:
        with log.open("ab") as output:
            try:
                return await children.start(
                    launch.argv, env=launch.env, cwd=launch.cwd, stdout=output, stderr=output, dies_with_us=True
                )
            except (OSError, ValueError) as error:
                raise CannotLaunch("StartError", f"failed to start: {error}") from None

    def _surroundings(self, mounts: dict[str, Path], scratch: Path, added: dict[str, str]) -> Surroundings:
        facts, store, namespace = self._node.facts, self._node.server.store, self.key.namespace
        on_host = bool(spec_of(self.pod).get("hostNetwork"))
        metadata = facts.metadata_host if on_host else facts.hidden_metadata_host
        return Surroundings(
            node_name=facts.name,
            pod_ip=self.pod_ip,
            host_ip=facts.host_ip,
            scratch=scratch,
            mounts=mounts,
            added_env={"GCE_METADATA_HOST": metadata, "GCE_METADATA_IP": metadata, **added},
            secret=lambda name: store.find(SECRETS, Key(namespace, name)),
            config_map=lambda name: store.find(CONFIG_MAPS, Key(namespace, name)),
        )

    async def _end_when_asked(self) -> None:
        """Ends all processes when the pod must end, including processes that start late. Runs until cancelled."""
        await self._asked.wait()
        reported: set[int] = set()
        while True:
            self._changed.clear()
            if not self.is_lost:
                for process in [each for each in self._processes.values() if each.pid not in reported]:
                    reported.add(process.pid)
                    _signal(process)
            grace_s = self._kill_at_s - self._node.clock.monotonic_s()
            if grace_s <= 0:
                running = {self._records[name].id: process.pid for name, process in self._processes.items()}
                await self._node.sweeper.kill_all(running.keys(), running.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s if grace_s > 0 else None):
                    await self._changed.wait()

    async def _pause(self, seconds: float) -> None:
        """Sleeps, but at most until the pod must end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()

    def _close(self) -> None:
        """Marks containers that never ran, or wait for a restart, as ended."""
        now_s = self._node.clock.wall_s()
        if self._asked.is_set():
            for name, record in self._records.items():
                if not isinstance(record.state, Ended):
                    never = Ended(_KILLED, "ContainerStatusUnknown", now_s, now_s)
                    self._records[name] = record.ended(never, will_restart=False)
                elif record.will_restart:
                    self._records[name] = replace(record, will_restart=False)
        self._publish()

    def _set(self, name: str, record: ContainerRecord, *, quietly: bool = False) -> None:
        self._records[name] = record
        if not quietly:
            self._publish()

    def _publish(self) -> None:
        store = self._node.server.store
        current = store.find(PODS, self.key)
        if self.is_lost or current is None or uid_of(current) != self.uid:
            return
        every, now = list(self._records.values()), store.now

        def change(obj: Obj) -> None:
            obj["status"] = records.pod_status(obj, every, self._facts, now)

        store.modify(PODS, self.key, change)

    def _tell(self, reason: str, message: str, *, is_warning: bool = False) -> None:
        if not self.is_lost:
            record_event(self._node.server, self.pod, reason, message, is_warning=is_warning, source="kubelet")

    def _scratch(self, container: str) -> Path:
        return self.folder / "c" / container

    def described(self) -> Obj:
        return {"namespace": self.key.namespace, "name": self.key.name, "uid": meta(self.pod)["uid"], "pids": self.pids}


def _signal(process: asyncio.subprocess.Process) -> None:
    """Sends SIGTERM to the first process of a container only, which may pass it on."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)

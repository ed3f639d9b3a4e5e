"""Logs of containers: one file for each run, which can be read whole, from a tail, or followed."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from simulator.kubelet.volumes import remove_folder
from simulator.kubernetes import problems
from simulator.kubernetes.objects import Key, Obj, key_of, meta, spec_of, status_of, uid_of
from simulator.kubernetes.queries import flag, number
from simulator.kubernetes.resources import PODS
from simulator.kubernetes.store import Store

_PIECE_BYTES = 64 * 1024
_FOLLOW_S = 0.05
_PODS_AT_MOST = 500


class LogFolder:
    """The logs of one cluster's pods, including the last pods that ended."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder = folder
        self._store = store

    def file(self, pod: Obj, container: str, run: int) -> Path:
        fields = meta(pod)
        return self._folder / f"{fields['namespace']}_{fields['name']}_{fields['uid'][:8]}" / container / f"{run}.log"

    def new_file(self, pod: Obj, container: str, run: int) -> Path:
        """The file for a new run; only the previous run's file stays."""
        path = self.file(pod, container, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.file(pod, container, run - 2).unlink()
        return path

    def forget_old(self, living: set[str]) -> None:
        """Removes old logs of ended pods; `living` has the uids of existing pods."""
        if not self._folder.is_dir():
            return
        kept = {uid[:8] for uid in living}
        ended = [path for path in self._folder.iterdir() if path.name.rpartition("_")[2] not in kept]
        ended.sort(key=lambda path: path.stat().st_mtime)
        for path in ended[:-_PODS_AT_MOST]:
            remove_folder(path)

    def stream(self, pod: Obj, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        container = _container(pod, query.get("container", ""))
        run = self._run(pod, container, previous=flag(query, "previous"))
        path = self.file(pod, container, run)
        start = _tail_start(path, number(query, "tailLines"))
        limit = number(query, "limitBytes")
        follows = flag(query, "follow") and not flag(query, "previous")
        return self._read(path, start, limit, (key_of(pod), uid_of(pod), container, run) if follows else None)

    def _run(self, pod: Obj, container: str, *, previous: bool) -> int:
        status = _status(pod, container)
        restarts = int(status.get("restartCount", 0))
        has_run = self.file(pod, container, restarts).exists()
        if previous:
            if not restarts or not self.file(pod, container, restarts - 1).exists():
                text = f'previous terminated container "{container}" in pod "{meta(pod)["name"]}" not found'
                raise problems.bad_request(text)
            return restarts - 1
        if not has_run and restarts and self.file(pod, container, restarts - 1).exists():
            return restarts - 1
        if not has_run:
            why = ((status.get("state") or {}).get("waiting") or {}).get("reason", "ContainerCreating")
            text = f'container "{container}" in pod "{meta(pod)["name"]}" is waiting to start: {why}'
            raise problems.bad_request(text)
        return restarts

    async def _read(
        self, path: Path, start: int, limit: int | None, following: tuple[Key, str, str, int] | None
    ) -> AsyncGenerator[bytes, None]:
        position, left = start, limit
        while True:
            continues = following is not None and self._continues(*following)
            while piece := _piece(path, position, _PIECE_BYTES if left is None else min(_PIECE_BYTES, left)):
                position += len(piece)
                left = None if left is None else left - len(piece)
                yield piece
            if not continues or left == 0:
                return
            await asyncio.sleep(_FOLLOW_S)
            if _size(path) < position:
                position = 0

    def _continues(self, key: Key, uid: str, container: str, run: int) -> bool:
        pod = self._store.find(PODS, key)
        if pod is None or uid_of(pod) != uid:
            return False
        status = _status(pod, container)
        return int(status.get("restartCount", 0)) == run and "running" in (status.get("state") or {})


def _container(pod: Obj, asked: str) -> str:
    spec, name = spec_of(pod), meta(pod)["name"]
    known = [each["name"] for each in (*(spec.get("initContainers") or []), *spec["containers"])]
    if asked and asked not in known:
        raise problems.bad_request(f"container {asked} is not valid for pod {name}")
    if asked:
        return asked
    if len(spec["containers"]) > 1:
        choices = ", ".join(each["name"] for each in spec["containers"])
        raise problems.bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    return str(spec["containers"][0]["name"])


def _status(pod: Obj, container: str) -> Obj:
    status = status_of(pod)
    every = (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or []))
    return next((each for each in every if each["name"] == container), {})


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _piece(path: Path, position: int, most: int) -> bytes:
    if most <= 0:
        return b""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(position)
        return file.read(most)
    return b""


def _tail_start(path: Path, lines: int | None) -> int:
    if lines is None or not path.exists():
        return 0
    content = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == 0x0A and index + 1 < len(content)]
    if lines == 0:
        return len(content)
    return ends[-lines] if len(ends) >= lines else 0

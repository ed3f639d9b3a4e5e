"""Control groups below the one of this process (cgroup v2, Linux), where this process may make them.

The kernel ends all processes of such a group as one, whatever they did to their parents, sessions and environments.
The cgroup of a worker is `tradewind-<worker id>.<pid of its agent>`. The id begins with the worker's uid.
"""

import contextlib
import time
from pathlib import Path

_EMPTY_S = 2.0
_LOOK_S = 0.01


class Cgroup:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, pid: int) -> None:
        """Moves a process into it, with all that it will start. Raises OSError where that is not permitted."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # it is gone
            (self.path / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Removes it and those below it, unless there are processes in them."""
        with contextlib.suppress(OSError):
            for below in self.path.iterdir():
                if below.is_dir():
                    Cgroup(below).remove()
            self.path.rmdir()

    def end(self) -> None:
        """Kills what is in it, waits for a moment until that is gone, and removes it."""
        self.kill()
        until_s = time.monotonic() + _EMPTY_S
        while self._has_processes() and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        self.remove()

    def _has_processes(self) -> bool:
        with contextlib.suppress(OSError):
            return "populated 1" in (self.path / "cgroup.events").read_text()
        return False


def create(name: str) -> Cgroup | None:
    """Makes a cgroup. None without cgroup v2, without permission, or if the kernel cannot kill a cgroup as a whole."""
    parent = _own()
    if parent is None:
        return None
    made = Cgroup(parent / name)
    try:
        made.path.mkdir()
    except OSError:
        return None
    if (made.path / "cgroup.kill").exists():
        return made
    made.remove()
    return None


def find(pattern: str) -> list[Cgroup]:
    """Cgroups below the one of this process whose names match the glob pattern."""
    parent = _own()
    with contextlib.suppress(OSError):
        return [Cgroup(path) for path in parent.glob(pattern) if path.is_dir()] if parent is not None else []
    return []


def worker_cgroup_name(worker: str, agent: int) -> str:
    return f"tradewind-{worker}.{agent}"


def is_of_worker(cgroup: Cgroup, worker: str) -> bool:
    return cgroup.path.name.rpartition(".")[0] == f"tradewind-{worker}"


def agent_of(cgroup: Cgroup) -> int | None:
    """The pid in the name of a worker's cgroup."""
    agent = cgroup.path.name.rpartition(".")[2]
    return int(agent) if agent.isdigit() else None


def find_of_workers(uid: str = "*") -> list[Cgroup]:
    """The cgroups of workers with this uid, or of all workers."""
    return find(f"tradewind-{uid}-*.*")


def _own() -> Path | None:
    """The folder of this process's own cgroup, in the file system of cgroup v2."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        inside = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
        for mount in Path("/proc/self/mountinfo").read_text().splitlines():
            fields, _, kind = mount.partition(" - ")
            root, place = fields.split()[3:5]
            if kind.startswith("cgroup2 ") and inside is not None and Path(inside).is_relative_to(root):
                path = Path(place, Path(inside).relative_to(root))
                return path if path.is_dir() else None
    return None

"""Control groups below this process's own (cgroup v2, Linux), if it may create them.

The kernel ends all processes of such a group at once, even if they changed parents, sessions and environments.
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
        """Moves a process into the cgroup; its later children follow. Raises `OSError` if that is not permitted."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # the cgroup is gone
            (self.path / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Removes the cgroup and those below it, unless they contain processes."""
        with contextlib.suppress(OSError):
            for below in self.path.iterdir():
                if below.is_dir():
                    Cgroup(below).remove()
            self.path.rmdir()

    def end(self) -> None:
        """Kills all processes in the cgroup, waits a moment for their end, and removes the cgroup."""
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
    """Creates a cgroup. None without cgroup v2, without permission, or without `cgroup.kill` in the kernel."""
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
    """Returns the cgroups below this process's own whose names match the glob pattern."""
    parent = _own()
    with contextlib.suppress(OSError):
        return [Cgroup(path) for path in parent.glob(pattern) if path.is_dir()] if parent is not None else []
    return []


def worker_cgroup_name(worker: str, agent: int) -> str:
    return f"tradewind-{worker}.{agent}"


def is_of_worker(cgroup: Cgroup, worker: str) -> bool:
    return cgroup.path.name.rpartition(".")[0] == f"tradewind-{worker}"


def agent_of(cgroup: Cgroup) -> int | None:
    """Returns the agent's pid from the name of a worker's cgroup."""
    agent = cgroup.path.name.rpartition(".")[2]
    return int(agent) if agent.isdigit() else None


def find_of_workers(uid: str = "*") -> list[Cgroup]:
    """Returns the cgroups of workers with this uid, or of all workers."""
    return find(f"tradewind-{uid}-*.*")


def _own() -> Path | None:
    """Returns the folder of this process's own cgroup (v2); None if there is none."""
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

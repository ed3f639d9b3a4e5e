"""A process that escapes: it has an empty environment, a session of its own, and no parent that would end it."""

import secrets

from runtime import proc


def a_name() -> str:
    """The argument by which `escaped` finds it: a unique number of seconds to sleep."""
    return f"600.{secrets.randbelow(10**9):09}"


def escape_source(name: str, then: str = "") -> str:
    """Python code that starts such a process, waits until it is independent, and continues with `then`."""
    return f"""
import os, time
here, there = os.pipe()  # closed in the child by its exec
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "{name}"], {{}})
    os._exit(0)
os.close(there)
os.wait()
os.read(here, 1)
os.close(here)
{then}
"""


def escaped(name: str) -> list[int]:
    """Pids of the running escaped processes."""
    return [pid for pid in proc.pids() if proc.arguments(pid)[:2] == [b"sleep", name.encode()]]

"""A torch that does nothing, for stories in which nothing is computed: hosts and stores are warm at once, and all else
about them is real."""

from pathlib import Path

ANYTHING = """
class Anything:
    def __call__(self, *args, **kwargs): return self
    def __getattr__(self, name): return self
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return Anything()
__version__ = "0.0-light"
"""
STORE = """
import socket
class TCPStore:
    def __init__(self, host_name, port, is_master=False, wait_for_workers=True, timeout=None, master_listen_fd=-1):
        self.host, self.port = host_name, port
        self.listener = socket.socket(fileno=master_listen_fd) if is_master else None
    def check(self, keys): return True
"""
"""Where ranks that exist on the bus only are said to meet: it listens, and nobody comes."""


def light_torch(folder: Path) -> str:
    """A folder for PYTHONPATH."""
    for module in ("", "distributed", "nn", "nn/parallel", "utils", "utils/data", "optim", "_C"):
        package = folder / "torch" / module
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(ANYTHING)
    (folder / "torch" / "_C" / "_distributed_c10d.py").write_text(STORE)
    return str(folder)

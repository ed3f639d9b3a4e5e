"""A torch that does nothing, for tests that compute nothing: hosts and stores are warm at once and otherwise real."""

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
"""A store for ranks that exist only on the bus: it listens, and no rank connects."""


def light_torch(folder: Path) -> str:
    """A folder for PYTHONPATH."""
    for module in ("", "distributed", "nn", "nn/parallel", "utils", "utils/data", "optim", "_C"):
        package = folder / "torch" / module
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(ANYTHING)
    (folder / "torch" / "_C" / "_distributed_c10d.py").write_text(STORE)
    return str(folder)


CUDA_BUILD = "cuda, hip = '12.9', None"
CPU_BUILD = "cuda = hip = None"


def torch_with_gpus(folder: Path, devices: int, use: str = "pass", build: str = CUDA_BUILD) -> str:
    """A folder for PYTHONPATH whose torch sees `devices` GPUs; `use` is executed when one of them is used."""
    package = Path(light_torch(folder)) / "torch"
    (package / "version.py").write_text(build)
    (package / "cuda.py").write_text(f"""
def device_count(): return {devices}
def is_initialized(): return False
def zeros(*size, device=None):
    if device is not None: {use}
""")
    with (package / "__init__.py").open("a") as torch:
        torch.write("\nimport torch.version\nfrom torch.cuda import zeros\n")
    return str(folder)

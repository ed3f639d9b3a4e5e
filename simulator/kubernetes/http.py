"""One cluster's API over HTTP: authentication, authorization, routing and answers."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import yaml
from aiohttp import web

from runtime.clock import Clock
from simulator.kubernetes import discovery, identities, problems, queries, rbac, routes
from simulator.kubernetes.gate import Gate
from simulator.kubernetes.identities import Claim, Networks, User, may_enter
from simulator.kubernetes.listing import list_objects
from simulator.kubernetes.objects import Key, Obj, scale_of, timestamp, uid_of
from simulator.kubernetes.patch import APPLY_PATCH, merge_patch
from simulator.kubernetes.problems import ApiProblem, Cause
from simulator.kubernetes.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from simulator.kubernetes.routes import Discovery, Plain, Target
from simulator.kubernetes.server import PATCHES, ApiServer
from simulator.kubernetes.watch import check_start, watch

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
_TOKEN_S = 3600
_TOKEN_LEAST_S = 600


class PodLogs(Protocol):
    """Reads the output of containers."""

    def stream(self, pod: Obj, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Streams the output; raises at once if it cannot be read."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    secret: str
    bookmark_s: float = 60.0
    gone_as_status: bool = False
    enforces_rbac: bool = True
    authorized: Networks | None = None


class ClusterHttp:
    def __init__(
        self, cluster: str, server: ApiServer, gate: Gate, logs: PodLogs, clock: Clock, options: HttpOptions
    ) -> None:
        self._cluster = cluster
        self._server = server
        self._gate = gate
        self._logs = logs
        self._clock = clock
        self._options = options

    async def handle(self, request: web.Request, path: str) -> web.StreamResponse:
        if not may_enter(self._options.authorized, request.remote, request.headers.get("Authorization", "")):
            # Google drops the packets; a reset has the same effect without the wait.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        if not await self._gate.enter(request):
            return web.Response(status=503)
        try:
            return await self._answer(request, path)
        except ApiProblem as problem:
            return _json(problem.status(), problem.code)
        finally:
            await self._gate.clear()
            self._gate.leave(request)

    async def _answer(self, request: web.Request, path: str) -> web.StreamResponse:
        route = routes.parse(path, self._server.registry)
        if isinstance(route, Plain):
            return _json(discovery.VERSION) if route.name == "version" else web.Response(text="ok")
        user = self._user(request)
        if isinstance(route, Discovery):
            if user == identities.ANONYMOUS:
                raise problems.forbidden_path(user.name, request.method.lower(), f"/{path.strip('/')}")
            return _json(discovery.answer(route, self._server.registry, request.host))
        self._authorize(user, request, route)
        if route.subresource in ("", "status", "finalize"):
            return await self._whole(request, route)
        return await self._subresource(request, route)

    def _user(self, request: web.Request) -> User:
        given = request.headers.get("Authorization", "")
        if not given and self._options.enforces_rbac:
            return identities.ANONYMOUS
        user = identities.identify(self._options.secret, self._cluster, given, self._clock.wall_s())
        if user is None:
            raise problems.unauthorized()
        accounts = self._server.store.all(SERVICE_ACCOUNTS)
        if user.account_uid and not any(uid_of(each) == user.account_uid for each in accounts):
            raise problems.unauthorized()
        return user

    def _authorize(self, user: User, request: web.Request, target: Target) -> None:
        verb = _VERBS.get(request.method, request.method.lower())
        if verb == "get" and not target.name:
            verb = "watch" if queries.flag(request.query, "watch") else "list"
        if verb == "delete" and not target.name:
            verb = "deletecollection"
        plural = target.resource.plural + (f"/{target.subresource}" if target.subresource else "")
        namespace = target.name if target.resource.id == NAMESPACES.id else target.namespace
        action = rbac.Action(verb, target.resource.group, plural, namespace, target.name)
        if self._options.enforces_rbac and not rbac.allows(self._server.store, user, action):
            raise problems.forbidden(target.resource.title, target.name, rbac.refusal(user, action))

    async def _whole(self, request: web.Request, target: Target) -> web.StreamResponse:
        server, query = self._server, request.query
        writing = queries.writing(query, request.headers.get("User-Agent", ""))
        resource, key = target.resource, Key(target.namespace, target.name)
        match request.method:
            case "GET" if queries.flag(query, "watch") and not target.subresource:
                return await self._watch(request, target)
            case "GET" if target.name:
                return _json(_at_version(target, server.store.get(resource, key)))
            case "GET":
                return _json(_listed(target, list_objects(server.store, resource, queries.listing(query, target))))
            case "POST" if not target.name and bool(target.namespace) == resource.namespaced:
                body = _own(target, await _object(request))
                return _json(_at_version(target, server.create(resource, body, writing)), 201)
            case "PUT" if target.name:
                existed = server.store.find(resource, key) is not None
                stored = server.replace(target, _own(target, await _object(request)), writing)
                return _json(_at_version(target, stored), 200 if existed else 201)
            case "PATCH" if target.name:
                content_type = request.content_type
                if content_type not in PATCHES:
                    raise problems.unsupported_media_type()
                if content_type == APPLY_PATCH and not query.get("fieldManager"):
                    cause = Cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
                    raise problems.bad_options("PatchOptions", cause)
                patch = await _body(request, as_yaml=content_type == APPLY_PATCH)
                existed = server.store.find(resource, key) is not None
                stored = server.patch(target, content_type, patch, writing)
                return _json(_at_version(target, stored), 200 if existed else 201)
            case "DELETE" if not target.subresource:
                options = queries.deleting(query, await _body(request) if request.can_read_body else None)
                if target.name:
                    return _json(_at_version(target, server.delete(resource, key, options, dry_run=writing.dry_run)))
                listing = queries.listing(query, target)
                return _json(_listed(target, server.delete_all(resource, listing, options)))
        raise problems.method_not_allowed()

    async def _subresource(self, request: web.Request, target: Target) -> web.StreamResponse:
        key = Key(target.namespace, target.name)
        match target.subresource, request.method:
            case "log", "GET":
                return await self._log(request, key)
            case "eviction", "POST":
                body = await _object(request)
                options = queries.deleting({}, body.get("deleteOptions"))
                self._server.delete(PODS, key, options)
                return _json(problems.success(code=201), 201)
            case "binding", "POST":
                body = await _object(request)
                self._server.bind(key, str((body.get("target") or {}).get("name") or ""))
                return _json(problems.success(code=201), 201)
            case "token", "POST":
                return _json(self._token(key, await _object(request)), 201)
            case "scale", "GET":
                return _json(scale_of(self._server.store.get(target.resource, key)))
            case "scale", "PUT" | "PATCH":
                given = await _object(request)
                writing = queries.writing(request.query, request.headers.get("User-Agent", ""))
                return _json(self._server.scale(target, lambda scale: merge_patch(scale, given), writing))
        raise problems.method_not_allowed()

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = queries.watching(
            request.query, target, bookmark_s=self._options.bookmark_s, gone_as_status=self._options.gone_as_status
        )
        store = self._server.store
        check_start(store, target.resource, options)
        lines = watch(store, target.resource, target.api_version, options)
        return await self._stream(request, lines, "application/json")

    async def _log(self, request: web.Request, key: Key) -> web.StreamResponse:
        pod = self._server.store.get(PODS, key)
        return await self._stream(request, self._logs.stream(pod, request.query), "text/plain")

    async def _stream(
        self, request: web.Request, pieces: AsyncGenerator[bytes, None], content_type: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        async with contextlib.aclosing(pieces):
            with contextlib.suppress(ConnectionResetError):
                await response.prepare(request)
                async for piece in pieces:
                    await self._gate.clear()
                    await response.write(piece)
                await response.write_eof()
        return response

    def _token(self, key: Key, body: Obj) -> Obj:
        account = self._server.store.get(SERVICE_ACCOUNTS, key)
        wanted_s = (body.get("spec") or {}).get("expirationSeconds") or _TOKEN_S
        if not isinstance(wanted_s, int):
            raise problems.bad_request("spec.expirationSeconds must be a number")
        if wanted_s < _TOKEN_LEAST_S:
            text = f"Invalid value: {wanted_s}: may not specify a duration less than 10 minutes"
            cause = Cause("spec.expirationSeconds", text)
            raise problems.invalid("TokenRequest", "", [cause], "authentication.k8s.io")
        expires_s = self._clock.wall_s() + wanted_s
        claim = Claim(key.namespace, key.name, uid_of(account), expires_s)
        secret = identities.account_secret(self._options.secret, self._cluster)
        status = {"token": identities.issue_for_account(secret, claim), "expirationTimestamp": timestamp(expires_s)}
        spec = {"audiences": [], "boundObjectRef": None, **(body.get("spec") or {}), "expirationSeconds": wanted_s}
        fields = {"name": key.name, "namespace": key.namespace, "creationTimestamp": self._server.store.now}
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": fields,
            "spec": spec,
            "status": status,
        }


async def _object(request: web.Request) -> Obj:
    body = await _body(request)
    if not isinstance(body, dict):
        raise problems.bad_request("the body of the request must be an object")
    if not isinstance(body.get("metadata", {}), dict):
        raise problems.bad_request("metadata must be an object")
    return body


async def _body(request: web.Request, *, as_yaml: bool = False) -> Any:
    content = await request.read()
    if not content.strip():
        return None
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        if not as_yaml and "yaml" not in request.content_type:
            raise problems.bad_request(f"the body of the request cannot be read: {error}") from None
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError:
        raise problems.bad_request("the body of the request is neither JSON nor YAML") from None


def _own(target: Target, body: Obj) -> Obj:
    """The body with the namespace of the path; its kind, version and namespace must match the path."""
    kind, api_version = body.get("kind"), body.get("apiVersion")
    if kind not in (None, "", target.resource.kind):
        expected = f"{target.resource.kind}.{target.version}"
        raise problems.bad_request(f"the object provided is unrecognized: kind {kind} where {expected} is expected")
    if api_version not in (None, "", target.api_version):
        text = f"the API version in the data ({api_version}) does not match the expected API version"
        raise problems.bad_request(f"{text} ({target.api_version})")
    fields = dict(body.get("metadata") or {})
    if fields.get("namespace") not in (None, "", target.namespace):
        text = "the namespace of the provided object does not match the namespace sent on the request"
        raise problems.bad_request(text)
    if target.namespace:
        fields["namespace"] = target.namespace
    else:
        fields.pop("namespace", None)
    return {**body, "metadata": fields}


def _at_version(target: Target, obj: Obj) -> Obj:
    if target.version == target.resource.version or obj.get("kind") == "Status":
        return obj
    return {**obj, "apiVersion": target.api_version}


def _listed(target: Target, found: Obj) -> Obj:
    """The list at the target's version; items of built-in kinds have no kind of their own."""
    if target.resource.custom:
        items = [{**obj, "apiVersion": target.api_version} for obj in found["items"]]
    else:
        hidden = ("kind", "apiVersion")
        items = [{name: value for name, value in obj.items() if name not in hidden} for obj in found["items"]]
    return {**found, "apiVersion": target.api_version, "items": items}


def _json(content: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), status=status, content_type="application/json")

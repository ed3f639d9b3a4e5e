"""Calls to Compute's REST API for what GKE does not offer: quotas, instance groups, deletion of particular nodes.

GKE reports a pool's initial number of nodes but not its current target; its instance groups do.
"""

import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import aiohttp

from controlplane.clouds.gke.failures import CallFailed, Code, code_named
from controlplane.clouds.gke.groups import GroupError, GroupState, group_errors, group_state, instances_in
from controlplane.clouds.gke.machines import MACHINE_FIELDS, machines_in
from controlplane.clouds.gke.requests import InstanceGroup
from controlplane.clouds.gke.settings import GkeSettings
from controlplane.clouds.gke.tokens import AccessTokens, FetchedToken
from controlplane.clouds.interface import PROJECT, MachineInfo, Quota, QuotaKey

INSTANCES_AT_ONCE = 1000
MACHINES_PER_PAGE = 500
PAGES_AT_MOST = 200
ERROR_PAGES_AT_MOST = 4
QUOTA_AT_MOST = 2**53
_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ALREADY_EXISTS,
    412: Code.FAILED_PRECONDITION,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}


@dataclass(frozen=True, slots=True)
class Answer:
    body: Mapping[str, Any]
    at: float
    """Unix seconds when Google sent the answer."""


class ComputeClient:
    """Every method raises `CallFailed` and takes at most `call_s`."""

    def __init__(self, settings: GkeSettings, tokens: AccessTokens) -> None:
        self._base = settings.compute_url.rstrip("/")
        self._project = settings.project
        self._tokens = tokens
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=settings.call_s),
            trust_env=True,  # the proxies that grpc and google-auth use
        )

    async def quotas(self, scope: str) -> list[Quota]:
        path = f"projects/{_part(self._project)}"
        answer = await self._call("GET", path if scope == PROJECT else f"{path}/regions/{_part(scope)}")
        return [quota for each in _list(answer.body, "quotas") if (quota := read_quota(scope, each)) is not None]

    async def group(self, group: InstanceGroup) -> GroupState:
        """The state of a group; its target is None if the group does not exist."""
        try:
            return group_state((await self._call("GET", _path(group))).body)
        except CallFailed as failed:
            if failed.code is Code.NOT_FOUND:
                return GroupState(None, 0)
            raise

    async def errors(self, group: InstanceGroup) -> tuple[list[GroupError], float]:
        """Errors of the group's instances, and the time at Google in Unix seconds."""
        found: list[GroupError] = []
        now = 0.0
        async for answer in self._pages("GET", f"{_path(group)}/listErrors", ERROR_PAGES_AT_MOST):
            found += group_errors(answer.body)
            now = answer.at
        return found, now

    async def instances(self, group: InstanceGroup, *, pending_only: bool = False) -> set[str]:
        found: set[str] = set()
        async for answer in self._pages("POST", f"{_path(group)}/listManagedInstances", PAGES_AT_MOST):
            found.update(instances_in(answer.body, pending_only=pending_only))
        return found

    async def machines(self, label: str) -> list[MachineInfo]:
        """All machines with the label, in all zones."""
        query = {"filter": f"labels.{label}:*", "maxResults": str(MACHINES_PER_PAGE), "fields": MACHINE_FIELDS}
        path = f"projects/{_part(self._project)}/aggregated/instances"
        found: list[MachineInfo] = []
        last: Mapping[str, Any] = {}
        async for answer in self._pages("GET", path, PAGES_AT_MOST, query):
            found += machines_in(answer.body)
            last = answer.body
        if last.get("nextPageToken"):
            raise CallFailed(Code.ABORTED, f"Compute lists more than {len(found)} machines")
        return found

    async def delete_instances(self, group: InstanceGroup, names: Sequence[str]) -> None:
        """Delete instances and reduce the group's target. Instances that do not exist count as deleted."""
        for start in range(0, len(names), INSTANCES_AT_ONCE):
            instances = [f"zones/{group.zone}/instances/{name}" for name in names[start : start + INSTANCES_AT_ONCE]]
            body = {"instances": instances, "skipInstancesOnValidationError": True}
            answer = (await self._call("POST", f"{_path(group)}/deleteInstances", body)).body
            errors = _list(answer.get("error", {}), "errors")
            if errors:
                first = errors[0]
                raise CallFailed(Code.ABORTED, str(first.get("message", "")), str(first.get("code", "")))

    async def close(self) -> None:
        await self._session.close()

    async def _pages(
        self, method: str, path: str, at_most: int, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[Answer]:
        query = dict(query or {})
        for _ in range(at_most):
            answer = await self._call(method, path, query=query)
            yield answer
            token = answer.body.get("nextPageToken")
            if not isinstance(token, str) or not token:
                return
            query["pageToken"] = token

    async def _call(
        self, method: str, path: str, body: object = None, query: Mapping[str, str] | None = None
    ) -> Answer:
        async def once(token: FetchedToken) -> Answer:
            try:
                async with self._session.request(
                    method, f"{self._base}/{path}", params=query, json=body, headers=token.headers
                ) as response:
                    answer = await _json(response)
                    if response.status >= 400:
                        raise _refused(response.status, answer)
                    return Answer(answer, _date(response))
            except TimeoutError:
                raise CallFailed(Code.DEADLINE_EXCEEDED, f"Compute at {self._base} did not answer in time") from None
            except aiohttp.ClientError as error:
                raise CallFailed(Code.UNAVAILABLE, f"cannot reach Compute at {self._base}: {error}") from None

        return await self._tokens.spend(once)


def _date(response: aiohttp.ClientResponse) -> float:
    """Google's time, so that ages do not depend on the local clock; the local time if the answer has no date."""
    try:
        return parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
    except ValueError:
        return time.time()


def _path(group: InstanceGroup) -> str:
    return f"projects/{_part(group.project)}/zones/{_part(group.zone)}/instanceGroupManagers/{_part(group.name)}"


def _part(text: str) -> str:
    return quote(text, safe="")


async def _json(response: aiohttp.ClientResponse) -> Mapping[str, Any]:
    """The body of the response; empty if it is not a JSON object, such as a proxy's error page."""
    try:
        answer = await response.json(content_type=None)
    except ValueError:
        return {}
    return answer if isinstance(answer, Mapping) else {}


def _refused(status: int, answer: Mapping[str, Any]) -> CallFailed:
    error = answer.get("error")
    reported: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    named = str(reported.get("status", ""))
    code = _CODES.get(status, Code.UNAVAILABLE if status >= 500 else Code.INVALID_ARGUMENT)
    if named in Code.__members__:
        code = code_named(named)
    reasons = [
        str(each["reason"]) for each in (*_list(reported, "details"), *_list(reported, "errors")) if "reason" in each
    ]
    message = str(reported.get("message", "")) or f"Compute answered {status}"
    return CallFailed(code, message, *reasons)


def _list(answer: object, key: str) -> list[Mapping[str, Any]]:
    found = answer.get(key) if isinstance(answer, Mapping) else None
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def read_quota(scope: str, reported: Mapping[str, Any]) -> Quota | None:
    """The quota; None if its limit or usage is not a valid number, in which case the quota limits nothing here."""
    metric, limit, usage = reported.get("metric"), reported.get("limit"), reported.get("usage", 0.0)
    if not isinstance(metric, str) or not isinstance(limit, int | float) or not isinstance(usage, int | float):
        return None
    if not (limit >= 0 and usage > -math.inf):  # neither does NaN
        return None
    return Quota(QuotaKey(scope, metric), *(float(max(0, min(each, QUOTA_AT_MOST))) for each in (limit, usage)))

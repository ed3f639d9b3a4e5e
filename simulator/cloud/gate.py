"""The checks that Google makes before it looks at the request itself."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from runtime.clock import Clock
from simulator.cloud import tokens
from simulator.cloud.model import refusals
from simulator.cloud.model.refusals import Refusal

_MINUTE_S = 60.0


@dataclass(slots=True)
class Gate:
    clock: Clock
    projects: Collection[str]
    secret: str
    auth: bool = True
    calls_per_minute: int = 0
    disabled: set[tuple[str, str]] = field(default_factory=set)
    """Projects and services whose API is not enabled."""
    throttling: set[str] = field(default_factory=set)
    """Services that refuse every call with a rate limit."""
    away: set[str] = field(default_factory=set)
    """Services that are unavailable."""
    planned: dict[tuple[str, str], deque[Refusal]] = field(default_factory=dict)
    """Refusals of the next calls, by service and method."""
    methods: set[tuple[str, str]] = field(default_factory=set)
    """All known methods, by service."""
    _recent: dict[str, deque[float]] = field(default_factory=dict)

    def refusal(
        self, service: str, project: str, authorization: str, user_project: str = "", method: str = ""
    ) -> Refusal | None:
        """The refusal of a call, if any. `user_project` is the `X-Goog-User-Project` header, which users must send."""
        token = tokens.bearer(authorization)
        if service in self.away:
            return refusals.away()
        if self.auth and not tokens.is_valid(self.secret, token, self.clock.wall_s()):
            return refusals.not_signed_in()
        if tokens.is_user(token) and not user_project:
            return refusals.no_quota_project(service)
        if user_project and user_project not in self.projects:
            return refusals.user_project_denied(user_project)
        if project not in self.projects:
            return refusals.no_project(project)
        if (project, service) in self.disabled:
            return refusals.api_disabled(project, service)
        if service in self.throttling or self._is_too_fast(project):
            return refusals.throttled(project, service)
        planned = self.planned.get((service, method))
        return planned.popleft() if planned else None

    def _is_too_fast(self, project: str) -> bool:
        if not self.calls_per_minute:
            return False
        now_s = self.clock.monotonic_s()
        recent = self._recent.setdefault(project, deque())
        while recent and recent[0] <= now_s - _MINUTE_S:
            recent.popleft()
        if len(recent) >= self.calls_per_minute:
            return True
        recent.append(now_s)
        return False

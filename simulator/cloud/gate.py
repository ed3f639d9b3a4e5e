"""Who may come in: the checks that Google makes before it looks at what is asked."""

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
    """Projects and services: their API is not enabled."""
    throttling: set[str] = field(default_factory=set)
    """Services that refuse every call as one too many."""
    away: set[str] = field(default_factory=set)
    """Services that nobody answers for."""
    planned: dict[tuple[str, str], deque[Refusal]] = field(default_factory=dict)
    """What the next calls of a method are refused with, by service and method."""
    _recent: dict[str, deque[float]] = field(default_factory=dict)

    def refusal(self, service: str, project: str, authorization: str, method: str) -> Refusal | None:
        if service in self.away:
            return refusals.away()
        if self.auth and not tokens.is_valid(self.secret, tokens.bearer(authorization), self.clock.wall_s()):
            return refusals.not_signed_in()
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

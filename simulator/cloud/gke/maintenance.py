"""Maintenance policies: the exclusions of a cluster, and those that GKE refuses."""

import hashlib
from collections.abc import Callable
from typing import Any

from google.cloud import container_v1

from simulator.cloud.model import refusals
from simulator.cloud.model.refusals import Code, Refusal
from simulator.cloud.model.state import Exclusion, Scope

EXCLUSIONS_AT_MOST = 20
NO_UPGRADES_AT_MOST_S = 90 * 86_400.0
"""Not verified against Google: earlier documentation says 30 days."""
SUPPORT_S = 420 * 86_400.0
"""Seconds from now to the end of a version's support. GKE uses the real date, which the simulator does not have."""

CoreTime = Callable[[float], float]
"""Converts Unix seconds to the core's time."""


def exclusions_of(policy: Any, now_unix_s: float, core_time: CoreTime) -> tuple[Exclusion, ...] | Refusal:
    windows = dict(policy.window.maintenance_exclusions)
    if len(windows) > EXCLUSIONS_AT_MOST:
        return refusals.invalid(f"A cluster can have up to {EXCLUSIONS_AT_MOST} maintenance exclusions.")
    found = []
    for name, window in windows.items():
        scope = getattr(window.maintenance_exclusion_options.scope, "name", "")
        if scope not in set(Scope):
            return refusals.invalid(f"Maintenance exclusion {name} has an unknown scope.")
        if window.start_time is None or window.end_time is None:
            return refusals.invalid(f"Maintenance exclusion {name} must have a start time and an end time.")
        begin_s, end_s = window.start_time.timestamp(), window.end_time.timestamp()
        if end_s <= begin_s:
            return refusals.invalid(f"Maintenance exclusion {name} must end after it starts.")
        if scope == Scope.NO_UPGRADES and end_s - begin_s > NO_UPGRADES_AT_MOST_S:
            return refusals.invalid(f"Maintenance exclusion {name} with scope NO_UPGRADES is too long.")
        if end_s > now_unix_s + SUPPORT_S:
            return refusals.invalid(f"Maintenance exclusion {name} must end before the end of support of the version.")
        found.append(Exclusion(Scope(scope), core_time(begin_s), core_time(end_s)))
    return tuple(found)


def with_policy(cluster: Any, policy: Any) -> Any | Refusal:
    """The cluster's message with the new policy, if the old one did not change meanwhile."""
    if policy.resource_version != version_of(cluster.maintenance_policy):
        message = "The maintenance policy has changed since it was read: its resource version differs."
        return Refusal(Code.FAILED_PRECONDITION, message)
    cluster.maintenance_policy = policy
    return cluster


def version_of(policy: Any) -> str:
    """A hash of the policy; SHA-256 is not verified against Google."""
    bare = container_v1.MaintenancePolicy(window=policy.window)
    return hashlib.sha256(container_v1.MaintenancePolicy.pb(bare).SerializeToString(deterministic=True)).hexdigest()[:8]

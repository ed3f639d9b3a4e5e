"""Maintenance exclusions: in a release channel, only they prevent node upgrades.

They do not prevent repairs and emergency upgrades, and none outlasts the support of a cluster's version.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from controlplane.clouds.gke.enums import name_of

if TYPE_CHECKING:
    from google.cloud import container_v1

EXCLUSION = "tradewind"
_SCOPE = "NO_MINOR_OR_NODE_UPGRADES"
_KEEPING = ("NO_UPGRADES", _SCOPE)


def exclusion(now_unix_s: float, until_unix_s: float) -> dict[str, Any]:
    return {
        "start_time": datetime.fromtimestamp(now_unix_s, UTC),
        "end_time": datetime.fromtimestamp(until_unix_s, UTC),
        "maintenance_exclusion_options": {"scope": _SCOPE},
    }


def renewed(
    policy: "container_v1.MaintenancePolicy", now_unix_s: float, until_unix_s: float
) -> "container_v1.MaintenancePolicy":
    """The policy with Tradewind's exclusion renewed. Windows and exclusions of other people do not change."""
    changed = type(policy)(policy)
    window: Any = changed.window
    window.maintenance_exclusions[EXCLUSION] = exclusion(now_unix_s, until_unix_s)
    changed.window = window
    return changed


def excluded_until(policy: "container_v1.MaintenancePolicy", now_unix_s: float) -> float | None:
    """Unix seconds until which an exclusion prevents node upgrades; None if no exclusion prevents them now.

    An exclusion until the end of support may have no end time and then does not count.
    """
    times = [
        (each.start_time.timestamp(), each.end_time.timestamp())
        for each in policy.window.maintenance_exclusions.values()
        if name_of(each.maintenance_exclusion_options.scope) in _KEEPING and each.start_time and each.end_time
    ]
    return max((end for start, end in times if start <= now_unix_s < end), default=None)

"""Parses the query of a request."""

from collections.abc import Mapping
from typing import Any

from simulator.kubernetes import selectors
from simulator.kubernetes.listing import Listing
from simulator.kubernetes.problems import Cause, bad_options, bad_request
from simulator.kubernetes.routes import Target
from simulator.kubernetes.selectors import Predicate
from simulator.kubernetes.server import Writing
from simulator.kubernetes.store import DeleteOptions
from simulator.kubernetes.watch import WatchOptions

Query = Mapping[str, str]

_MATCHES = ("Exact", "NotOlderThan")
_FORBIDDEN = "FieldValueForbidden"


def flag(query: Query, name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true")


def number(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        raise bad_request(f'invalid value for {name}: "{text}"')
    return int(text)


def listing(query: Query, target: Target) -> Listing:
    version = number(query, "resourceVersion")
    match, page = query.get("resourceVersionMatch", ""), query.get("continue", "")
    if match and match not in _MATCHES:
        text = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        raise bad_options("ListOptions", Cause("resourceVersionMatch", text, "FieldValueNotSupported"))
    if match and version is None:
        text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise bad_options("ListOptions", Cause("resourceVersionMatch", text, _FORBIDDEN))
    if page and version:
        raise bad_request("specifying resource version is not allowed when using continue")
    return Listing(
        namespace=target.namespace,
        matches=_selection(query, target),
        limit=number(query, "limit") or 0,
        page=page,
        exact_version=version if match == "Exact" else None,
        least_version=version or 0,
    )


def watching(query: Query, target: Target, *, bookmark_s: float, gone_as_status: bool) -> WatchOptions:
    bookmarks = flag(query, "allowWatchBookmarks")
    initial = flag(query, "sendInitialEvents")
    if initial and query.get("resourceVersionMatch") != "NotOlderThan":
        text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise bad_options("ListOptions", Cause("resourceVersionMatch", text, _FORBIDDEN))
    return WatchOptions(
        namespace=target.namespace,
        matches=_selection(query, target),
        version=0 if initial else number(query, "resourceVersion") or 0,
        timeout_s=number(query, "timeoutSeconds"),
        bookmarks=bookmarks,
        bookmark_s=bookmark_s,
        marks_initial_end=initial and bookmarks,
        gone_as_status=gone_as_status,
    )


def writing(query: Query, user_agent: str) -> Writing:
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        text = f'Unsupported value: ["{dry_run}"]: supported values: "All"'
        raise bad_options("CreateOptions", Cause("dryRun", text, "FieldValueNotSupported"))
    manager = query.get("fieldManager") or user_agent.partition("/")[0] or "unknown"
    return Writing(manager, dry_run=bool(dry_run), force=flag(query, "force"))


def deleting(query: Query, body: Any) -> DeleteOptions:
    """Options of a deletion: those in the body, otherwise those in the query."""
    given = body if isinstance(body, dict) else {}
    preconditions = given.get("preconditions") or {}
    grace_s = given.get("gracePeriodSeconds")
    if not isinstance(preconditions, dict) or not isinstance(grace_s, int | None):
        raise bad_request("gracePeriodSeconds must be a number and preconditions an object")
    propagation = given.get("propagationPolicy") or query.get("propagationPolicy") or "Background"
    if propagation not in ("Background", "Foreground", "Orphan"):
        text = f'Unsupported value: "{propagation}": supported values: "Foreground", "Background", "Orphan", "nil"'
        raise bad_options("DeleteOptions", Cause("propagationPolicy", text, "FieldValueNotSupported"))
    if given.get("orphanDependents") is True or flag(query, "orphanDependents"):
        propagation = "Orphan"
    return DeleteOptions(
        grace_s=number(query, "gracePeriodSeconds") if grace_s is None else grace_s,
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
        propagation=propagation,
    )


def _selection(query: Query, target: Target) -> Predicate | None:
    chosen = selectors.both(
        selectors.by_labels(query.get("labelSelector", "")), selectors.by_fields(query.get("fieldSelector", ""))
    )
    if not target.name:
        return chosen
    return selectors.both(chosen, selectors.by_fields(f"metadata.name={target.name}"))

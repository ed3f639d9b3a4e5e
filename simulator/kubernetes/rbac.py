"""Authorization by the rules of the roles that are bound to a user."""

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.kubernetes.identities import MASTERS, User
from simulator.kubernetes.objects import Key, Obj
from simulator.kubernetes.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from simulator.kubernetes.store import Store

ADMIN_ROLES = frozenset({"cluster-admin"})
"""Roles that every cluster has and that allow everything."""


@dataclass(frozen=True, slots=True)
class Action:
    verb: str
    group: str
    resource: str
    """Plural name, with a subresource if any: `pods`, `pods/log`."""
    namespace: str = ""
    name: str = ""


def allows(store: Store, user: User, action: Action) -> bool:
    if MASTERS in user.groups:
        return True
    return any(_permits(rule, action) for rule in _rules(store, user, action.namespace))


def refusal(user: User, action: Action) -> str:
    where = f' in the namespace "{action.namespace}"' if action.namespace else " at the cluster scope"
    return f'User "{user.name}" cannot {action.verb} resource "{action.resource}" in API group "{action.group}"{where}'


def _rules(store: Store, user: User, namespace: str) -> Iterator[Obj]:
    for binding in store.all(CLUSTER_ROLE_BINDINGS):
        if _binds(binding, user):
            yield from _rules_of(store, binding, "")
    if namespace:
        for binding in store.all(ROLE_BINDINGS, namespace):
            if _binds(binding, user):
                yield from _rules_of(store, binding, namespace)


def _rules_of(store: Store, binding: Obj, namespace: str) -> list[Obj]:
    reference = binding.get("roleRef") or {}
    name = reference.get("name", "")
    if reference.get("kind") == "Role":
        role = store.find(ROLES, Key(namespace, name))
    elif name in ADMIN_ROLES:
        return [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    else:
        role = store.find(CLUSTER_ROLES, Key("", name))
    return [] if role is None else role.get("rules") or []


def _binds(binding: Obj, user: User) -> bool:
    return any(_is(subject, user, binding) for subject in binding.get("subjects") or [])


def _is(subject: Obj, user: User, binding: Obj) -> bool:
    match subject.get("kind"):
        case "ServiceAccount":
            namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
            return user.name == f"system:serviceaccount:{namespace}:{subject.get('name')}"
        case "Group":
            return subject.get("name") in user.groups
        case "User":
            return subject.get("name") == user.name
    return False


def _permits(rule: Obj, action: Action) -> bool:
    names = rule.get("resourceNames") or []
    return (
        _covers(rule.get("verbs"), action.verb)
        and _covers(rule.get("apiGroups"), action.group)
        and _covers_resource(rule.get("resources"), action.resource)
        and (not names or action.name in names)
    )


def _covers(allowed: list[str] | None, wanted: str) -> bool:
    return "*" in (allowed or []) or wanted in (allowed or [])


def _covers_resource(allowed: list[str] | None, wanted: str) -> bool:
    _, slash, subresource = wanted.partition("/")
    return _covers(allowed, wanted) or (bool(slash) and f"*/{subresource}" in (allowed or []))

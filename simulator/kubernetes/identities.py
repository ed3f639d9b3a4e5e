"""Identities of callers: tokens of the cloud are administrators, a pod's token is its service account.

Authorised networks restrict the addresses that may reach a cluster's API.
"""

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from runtime.errors import UserError
from simulator.cloud import tokens

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
_PREFIX = "simsa"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: frozenset[str]
    account_uid: str = ""
    """Uid of the service account; its tokens are invalid when it is deleted."""


class Claim(msgspec.Struct, frozen=True):
    namespace: str
    account: str
    uid: str
    expires_unix_s: float


ANONYMOUS = User("system:anonymous", frozenset({"system:unauthenticated"}))
ADMINISTRATOR = User("cloud", frozenset({MASTERS, AUTHENTICATED}))


def issue_for_account(secret: str, claim: Claim) -> str:
    """A service account's token: `simsa.<claim in base64>.<signature>`."""
    reported = base64.urlsafe_b64encode(msgspec.json.encode(claim)).decode().rstrip("=")
    return f"{_PREFIX}.{reported}.{_signature(secret, reported)}"


def is_of_account(token: str) -> bool:
    return token.startswith(f"{_PREFIX}.")


def identify(secret: str, cluster: str, authorization: str, now_s: float) -> User | None:
    """The user of a token, or None if it is invalid. A service account's token is valid in its cluster only."""
    token = tokens.bearer(authorization)
    if tokens.is_valid(secret, token, now_s):
        return ADMINISTRATOR
    prefix, _, rest = token.partition(".")
    reported, _, signature = rest.partition(".")
    expected = _signature(account_secret(secret, cluster), reported)
    if prefix != _PREFIX or not hmac.compare_digest(signature.encode(), expected.encode()):
        return None
    claim = msgspec.json.decode(base64.urlsafe_b64decode(reported + "=" * (-len(reported) % 4)), type=Claim)
    return None if claim.expires_unix_s <= now_s else user_of(claim)


def user_of(claim: Claim) -> User:
    groups = {"system:serviceaccounts", f"system:serviceaccounts:{claim.namespace}", AUTHENTICATED}
    return User(f"system:serviceaccount:{claim.namespace}:{claim.account}", frozenset(groups), claim.uid)


def account_secret(secret: str, cluster: str) -> str:
    """The key of one cluster's service accounts."""
    return _signature(secret, f"cluster/{cluster}")


def _signature(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


def networks(blocks: Iterable[str]) -> Networks:
    """Parses networks; raises `UserError` for an invalid one."""
    try:
        return tuple(ipaddress.ip_network(block) for block in blocks)
    except ValueError as error:
        raise UserError(f"authorized_networks: {error}") from None


def may_enter(allowed: Networks | None, remote: str | None, authorization: str) -> bool:
    """True if the address is allowed, or the caller is a pod: pods reach the API from inside the cluster."""
    if allowed is None or is_of_account(tokens.bearer(authorization)):
        return True
    address = ipaddress.ip_address(remote or "0.0.0.0")
    return any(address in network for network in allowed)

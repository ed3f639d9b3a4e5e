"""Authorised networks: from where a cluster's API may be reached."""

import ipaddress
from collections.abc import Iterable

from runtime.errors import UserError
from simulator.cloud import tokens
from simulator.kubernetes import identities

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


def networks(blocks: Iterable[str]) -> Networks:
    """Raises `UserError` for a text that is no network."""
    try:
        return tuple(ipaddress.ip_network(block) for block in blocks)
    except ValueError as error:
        raise UserError(f"authorized_networks: {error}") from None


def may_enter(allowed: Networks | None, remote: str | None, authorization: str) -> bool:
    """Pods reach the control plane from inside the cluster, whatever the networks say."""
    if allowed is None or identities.is_of_account(tokens.bearer(authorization)):
        return True
    address = ipaddress.ip_address(remote or "0.0.0.0")
    return any(address in network for network in allowed)

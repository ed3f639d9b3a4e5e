"""Stateless access tokens: `<prefix>.<expiry>.<signature>`, checked with the shared secret.

The cloud issues them; the cloud and its regions check them. `expiry` is in whole Unix seconds. The signature is the
hexadecimal HMAC-SHA256 of `<prefix>.<expiry>` with the secret as key. The prefix is `sim` for service accounts and
`user` for people.
"""

import hashlib
import hmac
import math

SERVICE_ACCOUNT = "sim"
USER = "user"


def issue(secret: str, now_s: float, lifetime_s: float, prefix: str = SERVICE_ACCOUNT) -> str:
    claim = f"{prefix}.{math.ceil(now_s + lifetime_s)}"
    return f"{claim}.{_signature(secret, claim)}"


def is_valid(secret: str, token: str, now_s: float) -> bool:
    claim, _, signature = token.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, claim).encode()):
        return False
    prefix, _, expiry = claim.partition(".")
    return prefix in (SERVICE_ACCOUNT, USER) and expiry.isdecimal() and now_s < int(expiry)


def is_user(token: str) -> bool:
    return token.startswith(f"{USER}.")


def bearer(authorization: str) -> str:
    """The token of an `Authorization` header, or nothing."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _signature(secret: str, claim: str) -> str:
    return hmac.new(secret.encode(), claim.encode(), hashlib.sha256).hexdigest()

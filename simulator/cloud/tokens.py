"""Access tokens that need no memory: `sim.<expiry>.<signature>`, checked by whoever shares the secret.

The cloud issues them, the cloud and its regions check them. `expiry` is in whole Unix seconds; the signature is the
hexadecimal HMAC-SHA256, under the secret, of `sim.<expiry>`.
"""

import hashlib
import hmac
import math

PREFIX = "sim"


def issue(secret: str, now_s: float, lifetime_s: float) -> str:
    claim = f"{PREFIX}.{math.ceil(now_s + lifetime_s)}"
    return f"{claim}.{_signature(secret, claim)}"


def is_valid(secret: str, token: str, now_s: float) -> bool:
    claim, _, signature = token.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, claim).encode()):
        return False
    prefix, _, expiry = claim.partition(".")
    return prefix == PREFIX and expiry.isdecimal() and now_s < int(expiry)


def bearer(authorization: str) -> str:
    """The token of an `Authorization` header, or nothing."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _signature(secret: str, claim: str) -> str:
    return hmac.new(secret.encode(), claim.encode(), hashlib.sha256).hexdigest()

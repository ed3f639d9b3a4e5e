"""A service account of the simulator: a key file that Google's libraries use unchanged, and the token endpoint.

The endpoint exchanges a signed claim of the account, or a refresh token of a user, for an access token.
"""

import base64
import binascii
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from runtime.clock import Clock
from runtime.errors import UserError
from simulator.cloud import tokens
from simulator.cloud.calls import CallLog
from simulator.cloud.replies import reply

_KEY_BITS = 2048


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    email: str
    key: rsa.RSAPrivateKey

    def key_file(self, project: str, token_uri: str) -> dict[str, str]:
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "type": "service_account",
            "project_id": project,
            "private_key_id": "simulator",
            "private_key": pem.decode(),
            "client_email": self.email,
            "client_id": "100000000000000000001",
            "auth_uri": token_uri,
            "token_uri": token_uri,
            "universe_domain": "googleapis.com",
        }

    def claims(self, assertion: str) -> dict[str, Any] | None:
        """The claims of a JWT that this account signed; None for any other text."""
        signed, _, signature = assertion.rpartition(".")
        try:
            self.key.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(_decoded(signed.partition(".")[2]))
        except (InvalidSignature, binascii.Error, ValueError):
            return None
        return claims if isinstance(claims, dict) and claims.get("iss") == self.email else None


def service_account(project: str, path: Path) -> ServiceAccount:
    """The account with the file's key, so that issued files stay valid after a restart; otherwise with a new key."""
    email = f"tradewind@{project}.iam.gserviceaccount.com"
    if not path.exists():
        return ServiceAccount(email, rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS))
    try:
        stored = json.loads(path.read_bytes())
        key = serialization.load_pem_private_key(stored["private_key"].encode(), password=None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} exists but has no key: {error}", "remove it, or give another file") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise UserError(f"The key in {path} is not an RSA key.", "remove it, or give another file")
    return ServiceAccount(email, key)


def write_key_file(account: ServiceAccount, project: str, token_uri: str, path: Path) -> None:
    """Writes the key file atomically, readable by its owner only."""
    text = json.dumps(account.key_file(project, token_uri), indent=2)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.touch(mode=0o600)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UserError(
            f"Cannot write the credentials to {path}: {error}", "give a file in a folder that you can write to"
        ) from None


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


BAD_SIGNATURE = "Invalid JWT Signature."
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
USER_GRANT = "refresh_token"
"""The refresh token of the only user is the secret."""


class TokenEndpoint:
    """Issues access tokens. Without an account it issues none for signed claims."""

    def __init__(
        self, account: ServiceAccount | None, secret: str, lifetime_s: float, clock: Clock, calls: CallLog
    ) -> None:
        self._account = account
        self._secret = secret
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._calls = calls

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/token", self._token)]

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        number = self._calls.arrived("token", "token", "")
        grant = str(form.get("grant_type", ""))
        if grant == USER_GRANT:
            refusal = self._user_refusal(str(form.get("refresh_token", "")))
        else:
            refusal = self._refusal(grant, str(form.get("assertion", "")))
        self._calls.ended(number, "OK" if refusal is None else "UNAUTHENTICATED")
        if refusal is not None:
            return refusal
        prefix = tokens.USER if grant == USER_GRANT else tokens.SERVICE_ACCOUNT
        token = tokens.issue(self._secret, self._clock.wall_s(), self._lifetime_s, prefix)
        return reply({"access_token": token, "expires_in": max(1, int(self._lifetime_s)), "token_type": "Bearer"})

    def _user_refusal(self, refresh_token: str) -> web.Response | None:
        if refresh_token == self._secret:
            return None
        return _error("invalid_grant", "Token has been expired or revoked.")

    def _refusal(self, grant: str, assertion: str) -> web.Response | None:
        if grant != GRANT:
            return _error("unsupported_grant_type", f"Invalid grant_type: {grant}")
        claims = None if self._account is None else self._account.claims(assertion)
        if claims is None:
            return _error("invalid_grant", BAD_SIGNATURE)
        expires = claims.get("exp")
        if not isinstance(expires, int | float) or expires <= self._clock.wall_s():
            return _error("invalid_grant", "Invalid JWT: Token must be a short-lived token; check your clock.")
        return None


def _error(error: str, description: str) -> web.Response:
    return reply({"error": error, "error_description": description}, 400)

"""The token endpoint: a service account's signed claim or a user's refresh token becomes an access token."""

from aiohttp import web

from runtime.clock import Clock
from simulator.cloud import tokens
from simulator.cloud.calls import CallLog
from simulator.cloud.credentials import ServiceAccount
from simulator.cloud.replies import reply

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
USER_GRANT = "refresh_token"
"""The refresh token of the only user is the secret."""


class TokenEndpoint:
    """Without an account nobody has a key, and nobody gets a token."""

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
            return _error("invalid_grant", "Invalid JWT Signature.")
        expires = claims.get("exp")
        if not isinstance(expires, int | float) or expires <= self._clock.wall_s():
            return _error("invalid_grant", "Invalid JWT: Token must be a short-lived token; check your clock.")
        return None


def _error(error: str, description: str) -> web.Response:
    return reply({"error": error, "error_description": description}, 400)

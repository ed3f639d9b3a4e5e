"""Google's credentials. Only this module imports google-auth; it is imported late, in a thread."""

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import google.auth
import google.auth.exceptions
import google.oauth2.credentials
import google.oauth2.service_account
from google.auth.transport.requests import Request

from controlplane.clouds.gke.failures import CallFailed, Code
from controlplane.clouds.gke.tokens import FetchedToken

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
REQUEST_S = 10.0
DEFAULT_LIFETIME_S = 300.0
"""Seconds for which a token without an expiry time is used."""

_SERVICE_ACCOUNT: Any = google.oauth2.service_account.Credentials
_USER: Any = google.oauth2.credentials.Credentials

SIGN_IN = (
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS, or set `cloud.credentials` in "
    "the fleet file to a service account's key"
)
OTHER_FILE = (
    "set `cloud.credentials` in the fleet file to a service account's key (JSON), or leave it out to use Google's "
    "application default credentials"
)
RENEW_KEY = "check that the key was not deleted, that the account exists, and that this machine's clock is right"


def token_fetcher(credentials_file: str | None, project: str, *, simulated: bool = False) -> Callable[[], FetchedToken]:
    """Create a function that fetches a token and raises `CallFailed`. Call it from one thread at a time.

    `project` pays for calls with user credentials that name no quota project.
    """
    return _Fetcher(credentials_file, project, simulated)


class _Fetcher:
    def __init__(self, credentials_file: str | None, project: str, simulated: bool) -> None:
        self._file = credentials_file
        self._project = project
        self._simulated = simulated
        self._credentials: Any = None

    def __call__(self) -> FetchedToken:
        if self._credentials is None:
            self._credentials = _from_file(Path(self._file), self._simulated) if self._file else _default()
        try:
            self._credentials.refresh(partial(Request(), timeout=REQUEST_S))
        except google.auth.exceptions.RefreshError as error:
            if error.retryable:
                raise _unanswered(error) from None
            self._credentials = None
            message = f"Google refused to issue an access token: {_said(error)}"
            raise CallFailed(Code.UNAUTHENTICATED, message, hint=RENEW_KEY) from None
        except (google.auth.exceptions.GoogleAuthError, OSError) as error:
            raise _unanswered(error) from None
        return FetchedToken(
            self._credentials.token,
            _lifetime_s(self._credentials.expiry),
            self._quota_project(),
        )

    def _quota_project(self) -> str | None:
        named: str | None = getattr(self._credentials, "quota_project_id", None)
        return named or (self._project if isinstance(self._credentials, _USER) else None)


def _default() -> Any:
    try:
        credentials, _project = google.auth.default(scopes=SCOPES)
    except google.auth.exceptions.DefaultCredentialsError as error:
        message = f"There are no Google credentials on this machine: {_said(error)}"
        raise CallFailed(Code.UNAUTHENTICATED, message, hint=SIGN_IN) from None
    return credentials


def _from_file(path: Path, simulated: bool) -> Any:
    """Read one of the two self-contained kinds. Other kinds name commands and addresses; `_default` reads them."""
    hint = OTHER_FILE
    try:
        info = json.loads(path.read_bytes())
        kind = info.get("type") if isinstance(info, dict) else None
        if kind == "service_account":
            return _SERVICE_ACCOUNT.from_service_account_info(info, scopes=SCOPES)
        if kind == "authorized_user":
            return _USER.from_authorized_user_info(info, scopes=SCOPES)
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        if simulated:
            hint = f"`tradewind simulator --write-credentials {path}` writes a service account's key there"
    except (ValueError, google.auth.exceptions.GoogleAuthError) as error:
        why = f"is not usable: {_said(error)}"
    else:
        why = f"has the type {kind!r}, not 'service_account' or 'authorized_user'"
    raise CallFailed(Code.UNAUTHENTICATED, f"The credentials file {path} {why}", hint=hint)


def _unanswered(error: Exception) -> CallFailed:
    return CallFailed(Code.UNAVAILABLE, f"cannot fetch an access token: {_said(error)}")


def _lifetime_s(expiry: datetime | None) -> float:
    if expiry is None:
        return DEFAULT_LIFETIME_S
    aware = expiry if expiry.tzinfo else expiry.replace(tzinfo=UTC)
    left_s = (aware - datetime.now(UTC)).total_seconds()
    return left_s if math.isfinite(left_s) and left_s > 0 else 0.0


def _said(error: BaseException) -> str:
    return str(error.args[0]) if error.args else type(error).__name__

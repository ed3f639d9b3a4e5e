"""Access tokens: issued for a service account's signature, checked with the shared secret, valid for a limited time."""

import asyncio
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from runtime.errors import UserError
from simulator.cloud import tokens
from simulator.cloud.credentials import BAD_SIGNATURE
from simulator.cloud.credentials import service_account as load_account
from tests.conftest import eventual_answer
from tests.simulator_cloud.running import PROJECT, SECRET, Running, running_cloud

_KEY_FILES: Any = service_account.Credentials
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
EVERYWHERE = f"projects/{PROJECT}/locations/-"


async def refreshed(path: Path) -> Any:
    """Credentials that Google's library creates from the file."""
    credentials = _KEY_FILES.from_service_account_file(str(path), scopes=SCOPES)
    await asyncio.to_thread(credentials.refresh, Request())
    return credentials


def test_a_token_is_good_until_it_expires_and_for_one_secret_only() -> None:
    token = tokens.issue("ours", 1000.0, 5.0)
    assert token.startswith("sim.1005.")
    assert tokens.is_valid("ours", token, 1004.9)
    assert not tokens.is_valid("ours", token, 1005.0)
    assert not tokens.is_valid("theirs", token, 1001.0)


@pytest.mark.parametrize("token", ["", "sim", "sim.9999999999", "sim.9999999999.", "...", "sim.x.y", "über.1.2"])
def test_what_is_no_token_is_not_taken_for_one(token: str) -> None:
    assert not tokens.is_valid("ours", token, 0.0)


def test_a_bearer_token_is_found_in_its_header() -> None:
    assert tokens.bearer("Bearer abc") == "abc"
    assert tokens.bearer("bearer  abc ") == "abc"
    assert tokens.bearer("Basic abc") == ""
    assert tokens.bearer("") == ""


async def test_googles_own_library_gets_a_token_with_the_file_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "inside" / "key.json"
    async with running_cloud(write_credentials=str(path), token_s=5.0) as cloud:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        credentials = await refreshed(path)
        assert credentials.project_id == PROJECT
        assert await cloud.call("list_clusters", token=credentials.token, parent=EVERYWHERE) is not None
        await cloud.get(f"/compute/v1/projects/{PROJECT}/regions/us-central1", token=credentials.token)


async def test_a_token_expires(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    async with running_cloud(write_credentials=str(path), token_s=0.2) as cloud:
        token = (await refreshed(path)).token

        async def refused() -> bool:
            try:
                await cloud.call("list_clusters", token=token, parent=EVERYWHERE)
            except exceptions.Unauthenticated:
                return True
            return False

        assert await eventual_answer(refused)
        again = (await refreshed(path)).token
        assert again != token


async def test_a_key_outlives_a_restart_of_the_cloud(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    async with running_cloud(write_credentials=str(path)):
        first = json.loads(path.read_text())
    async with running_cloud(write_credentials=str(path)) as cloud:
        second = json.loads(path.read_text())
        assert first["private_key"] == second["private_key"]
        assert second["token_uri"] == f"{cloud.serving.url}/token"
        assert (await refreshed(path)).token


async def test_another_key_gets_no_token(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    async with running_cloud(write_credentials=str(path)) as cloud:
        stranger = load_account(PROJECT, tmp_path / "another")
        path.write_text(json.dumps(stranger.key_file(PROJECT, f"{cloud.serving.url}/token")))
        with pytest.raises(RefreshError, match=re.escape(BAD_SIGNATURE)):
            await refreshed(path)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "a.b.c"}, "invalid_grant"),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "invalid_grant"),
        ({}, "unsupported_grant_type"),
    ],
)
async def test_what_is_no_grant_is_refused(form: dict[str, str], error: str) -> None:
    async with running_cloud() as cloud, cloud.http.post(f"{cloud.serving.url}/token", data=form) as response:
        assert response.status == 400
        assert (await response.json())["error"] == error


def test_a_file_that_holds_no_key_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary")
    with pytest.raises(UserError, match=re.escape(str(path))):
        load_account(PROJECT, path)
    assert path.read_text() == "dear diary"


async def test_regions_can_check_what_the_cloud_issues(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    async with running_cloud(write_credentials=str(path)) as cloud:
        assert isinstance(cloud, Running)
        token = (await refreshed(path)).token
    assert tokens.is_valid(SECRET, token, 0.0)

"""User credentials: every call names the project that pays, or Google refuses."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import google.oauth2.credentials
import msgspec
import pytest

from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.outcomes import Refused
from tests.clouds.simulated import PROJECT, REGION, SECRET, SimulatedStage


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedStage]:
    async with SimulatedStage.open(tmp_path) as stage:
        token_uri = stage.settings.compute_url.removesuffix("/compute/v1") + "/token"
        monkeypatch.setattr(google.oauth2.credentials, "_GOOGLE_OAUTH2_TOKEN_ENDPOINT", token_uri)
        yield stage


async def opened_as_user(stage: SimulatedStage, folder: Path, **named: str) -> GkeCloud:
    """A cloud with what `gcloud auth application-default login` stores."""
    path = folder / "user.json"
    user = {"type": "authorized_user", "client_id": "an-id", "client_secret": "a-word", "refresh_token": SECRET}
    path.write_text(json.dumps(user | named))
    return await GkeCloud.open(msgspec.structs.replace(stage.settings, credentials_file=str(path)))


async def test_the_fleet_s_project_pays_for_a_user_who_names_none(stage: SimulatedStage, tmp_path: Path) -> None:
    cloud = await opened_as_user(stage, tmp_path)
    try:
        assert await cloud.clusters() == []
        assert isinstance(await cloud.quotas(REGION), list)
        assert (await cloud.api_headers())["X-Goog-User-Project"] == PROJECT
    finally:
        await cloud.close()


async def test_the_user_s_own_quota_project_is_sent_and_its_refusal_says_what_to_grant(
    stage: SimulatedStage, tmp_path: Path
) -> None:
    cloud = await opened_as_user(stage, tmp_path, quota_project_id="foreign")
    try:
        for answer in (await cloud.clusters(), await cloud.quotas(REGION)):
            assert isinstance(answer, Refused)
            assert "foreign" in answer.detail
            assert "roles/serviceusage.serviceUsageConsumer" in answer.hint
    finally:
        await cloud.close()


async def test_a_service_account_sends_no_quota_project(stage: SimulatedStage) -> None:
    assert isinstance(stage.cloud, GkeCloud)
    assert set(await stage.cloud.api_headers()) == {"Authorization"}

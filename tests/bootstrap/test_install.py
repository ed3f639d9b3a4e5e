"""Installations in each kind of API server. Each test has its own namespace and does not wait for its deletion."""

from controlplane.bootstrap.bootstrap import install
from controlplane.bootstrap.outcomes import decide_step
from controlplane.bootstrap.settings import Secrets
from controlplane.clouds.outcomes import Busy, Done, Refused
from tests.bootstrap.builders import CLUSTER, container_of, env_of, some_secrets
from tests.bootstrap.installation import FLEET, Installation


async def test_installing_twice_is_installing_once(there: Installation) -> None:
    assert await there.install() == Done()
    before = await there.versions()

    assert await there.install() == Done()

    assert len(before) == len(there.manifests())
    assert await there.versions() == before


async def test_what_was_deleted_or_changed_is_put_right_and_what_others_added_stays(there: Installation) -> None:
    await there.install()
    deployment, notice = there.wanted("Deployment"), there.wanted("DaemonSet")
    await there.server.delete(notice)
    await there.server.change(deployment, {"spec": {"replicas": 3}, "metadata": {"annotations": {"theirs": "stays"}}})

    assert await there.install() == Done()

    found = await there.server.read(deployment)
    assert found["spec"]["replicas"] == 1
    assert found["metadata"]["annotations"]["theirs"] == "stays"
    assert container_of(await there.server.read(notice))["command"] == ["python", "-m", "agents.notice"]


async def test_new_settings_replace_the_old_ones_and_leave_nothing_of_them(there: Installation) -> None:
    await there.install(some_secrets())
    bus, deployment = there.wanted("Secret", "bus"), there.wanted("Deployment")
    before = await there.server.read(deployment)
    assert set((await there.server.read(bus))["data"]) == {"nats-url", "nats.creds"}

    assert await there.install(Secrets("nats://10.0.0.6:4222"), image="example.invalid/tradewind:2") == Done()

    after = await there.server.read(deployment)
    assert set((await there.server.read(bus))["data"]) == {"nats-url"}
    assert container_of(after)["image"] == "example.invalid/tradewind:2"
    assert "TRADEWIND_NATS_CREDENTIALS" in env_of(before)
    assert "TRADEWIND_NATS_CREDENTIALS" not in env_of(after)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_namespace_that_is_being_deleted_is_not_installed_into(there: Installation) -> None:
    await there.install()
    await there.server.delete(there.wanted("Namespace"))

    outcome = await there.install()

    assert isinstance(outcome, Busy)
    assert there.server.namespace in outcome.detail


async def test_a_namespace_of_others_is_used_and_stays_theirs(there: Installation) -> None:
    namespace = there.wanted("Namespace")
    await there.server.create({**namespace, "metadata": {"name": there.server.namespace, "labels": {"team": "us"}}})

    assert await there.install() == Done()

    labels = (await there.server.read(namespace))["metadata"]["labels"]
    assert labels["team"] == "us"
    assert "tradewind-fleet" not in labels


async def test_what_another_fleet_made_is_not_changed(there: Installation) -> None:
    await there.install()
    before = await there.versions()

    outcome = await there.install(fleet="production")

    namespace = there.wanted("Namespace")
    assert isinstance(outcome, Refused)
    assert outcome == decide_step(namespace, namespace, "production", CLUSTER)
    assert await there.versions() == before


async def test_an_unmanaged_object_with_a_name_of_ours_is_not_changed(there: Installation) -> None:
    namespace, account = there.wanted("Namespace"), there.wanted("ServiceAccount", "notice")
    await there.server.create({**namespace, "metadata": {"name": there.server.namespace}})
    fields = {"name": "notice", "namespace": there.server.namespace}
    await there.server.create({**account, "metadata": fields})

    outcome = await there.install()

    assert isinstance(outcome, Refused)
    assert outcome == decide_step(account, {**account, "metadata": fields}, FLEET, CLUSTER)
    assert f"ServiceAccount {there.server.namespace}/notice" in outcome.detail and CLUSTER in outcome.detail
    labels = (await there.server.read(account))["metadata"].get("labels") or {}
    assert "tradewind-fleet" not in labels


async def test_an_installation_that_was_cut_short_is_completed(there: Installation) -> None:
    begun = there.manifests()[:5]
    assert await install(there.server.client, begun, FLEET, CLUSTER) == Done()
    made = {each["kind"] for each in begun}

    assert await there.install() == Done()

    assert made < {each["kind"] for each in there.manifests()}
    assert len(await there.versions()) == len(there.manifests())

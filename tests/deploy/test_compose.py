"""Checks of docker-compose.yml without a container engine: its parts fit together."""

import os
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
import pytest
import yaml
from msgspec import structs

from agents.cluster.kubernetes.settings import KubernetesSettings
from controlplane.clouds.gke.fleet_file import GkeFleet, gke_settings
from controlplane.clouds.gke.settings import ENVIRONMENT_PREFIX as GKE_PREFIX
from controlplane.clouds.gke.settings import GkeSettings
from controlplane.master.settings import MasterSettings, check, read_master_settings
from messages.jobs import JobSpec
from runtime.settings import NATS_PREFIX, PREFIX, BusSettings
from simulator.cloud.settings import PREFIX as SIMULATOR_PREFIX
from simulator.cloud.settings import CloudSettings, region_urls
from simulator.command import simulator as simulator_command
from simulator.main import REGION_PREFIX, SimulatorSettings, read_simulator_settings
from simulator.region.settings import RegionSettings
from tests.clouds.gke_fleets import read_gke_fleet
from tradewind.cli import commands
from tradewind.client.api import ClientSettings
from tradewind.client.jobfile import read_job

ROOT = Path(__file__).resolve().parents[2]
HOME = "/home/tradewind"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"] == "tradewind"]
REGIONS = ("us-central1", "europe-west4")
MASTERS = ("master", "standby")
SETTINGS: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    (PREFIX, MasterSettings),
    (PREFIX, ClientSettings),
    (PREFIX, KubernetesSettings),
    (NATS_PREFIX, BusSettings),
    (GKE_PREFIX, GkeSettings),
    (SIMULATOR_PREFIX, CloudSettings),
    (REGION_PREFIX, RegionSettings),
)


def environ(service: str) -> dict[str, str]:
    """Environment of a service, with the defaults of the variables that the user may set."""
    given: dict[str, str] = SERVICES[service].get("environment", {})
    return {name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for name, value in given.items()}


def parsed(role: str, arguments: list[str]) -> dict[str, Any]:
    """Arguments as the command parses them; raises a `click` error if they are invalid."""
    with commands.make_context("tradewind", [role, *arguments]) as context:
        command: click.Command | None = commands.get_command(context, role)
        assert command is not None, role
        if role == "simulator":
            command = simulator_command
        with command.make_context(role, arguments, parent=context) as understood:
            return dict(understood.params)


def simulator(service: str) -> SimulatorSettings:
    role, *arguments = SERVICES[service]["command"]
    flags = parsed(role, arguments)
    regions = ",".join(flags.pop("regions")) or None
    return read_simulator_settings(environ(service), {**flags, "regions": regions})


def master(service: str) -> MasterSettings:
    role, *arguments = SERVICES[service]["command"]
    return read_master_settings(environ(service), parsed(role, arguments))


def mounted(service: str, path: str) -> Path:
    """The file of this repository that the service sees there."""
    volumes: list[str] = SERVICES[service]["volumes"]
    [here] = [volume.split(":")[0] for volume in volumes if f":{path}" in volume]
    return ROOT / here


def the_fleet() -> GkeFleet:
    return read_gke_fleet(mounted("master", "/etc/tradewind/fleet.yaml"))


def the_job() -> JobSpec:
    return read_job(ROOT / "deploy" / "compose" / "job.yaml")


def host_of(url: str) -> str:
    return urlsplit(url if "://" in url else f"//{url}").hostname or ""


@pytest.fixture(autouse=True)
def _in_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes relative paths start at the image's working directory, which has this repository's examples."""
    monkeypatch.chdir(ROOT)


def test_there_is_a_bus_a_cloud_two_regions_a_master_a_standby_and_the_one_that_submits() -> None:
    assert set(SERVICES) == {"nats", "cloud", *REGIONS, *MASTERS, "submit"}


def test_everything_is_published_on_loopback_and_no_port_twice() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)
    assert SERVICES["master"]["ports"] == ["127.0.0.1:8800:8800"]
    assert SERVICES["standby"]["ports"] == ["127.0.0.1:8801:8800"]


def test_the_one_that_others_wait_for_says_when_it_is_healthy() -> None:
    waited_for = {
        (name, condition["condition"])
        for service in SERVICES.values()
        for name, condition in service.get("depends_on", {}).items()
    }
    assert {name for name, _ in waited_for} == set(SERVICES) - {"submit"}
    assert {condition for _, condition in waited_for} == {"service_healthy"}
    assert all(SERVICES[name]["healthcheck"]["test"] for name, _ in waited_for)


def test_a_health_check_asks_where_the_program_listens() -> None:
    asked = {name: SERVICES[name]["healthcheck"]["test"][1:] for name in OURS if name != "submit"}
    assert all(asked[name] == ["healthy", str(master(name).api_port)] for name in MASTERS)
    assert asked["cloud"] == ["healthy", str(simulator("cloud").cloud.http_port)]
    assert all(asked[name] == ["healthy", str(simulator(name).region.port), "/region"] for name in REGIONS)


def test_every_variable_is_a_setting() -> None:
    known = {f"{prefix}{name.upper()}" for prefix, struct in SETTINGS for name in struct.__struct_fields__}
    for service in OURS:
        assert set(environ(service)) <= known, service


def test_the_cloud_knows_its_regions_where_they_are() -> None:
    urls = region_urls(simulator("cloud").cloud)
    assert tuple(urls) == REGIONS
    for name, url in urls.items():
        region = simulator(name)
        assert (region.part, region.cloud.regions) == ("region", name)
        assert region.region.advertise_url == url == f"http://{name}:{region.region.port}"
        assert region.region.host == "0.0.0.0"


def test_pods_have_the_address_of_their_regions_container() -> None:
    for name in REGIONS:
        assert SERVICES[name]["hostname"] == simulator(name).region.pod_ip == name


def test_all_parts_of_the_cloud_have_the_same_secret() -> None:
    secrets = {simulator("cloud").cloud.secret, *(simulator(name).region.secret for name in REGIONS)}
    assert len(secrets) == 1


def test_the_job_begins_in_both_regions_and_has_room_in_either() -> None:
    workers, room = the_job().workers, [(offer.zone, offer.max_nodes) for offer in the_fleet().offers]
    first, second = room[:2]
    assert first[1] < workers.max <= first[1] + second[1]
    assert {zone.rpartition("-")[0] for zone, _ in room[:2]} == set(REGIONS)
    for region in REGIONS:
        assert sum(count for zone, count in room if zone.startswith(region)) >= workers.max
    assert first[1] >= workers.min and workers.max - first[1] >= workers.min


@pytest.mark.parametrize("name", MASTERS)
def test_a_master_can_be_started_with_its_settings_and_reaches_the_cloud(name: str) -> None:
    settings = master(name)
    check(structs.replace(settings, fleet=str(mounted(name, settings.fleet))))
    assert settings.store_host == name
    cloud, reached = simulator("cloud").cloud, gke_settings(the_fleet(), environ(name))
    assert (reached.endpoint, reached.insecure) == (f"cloud:{cloud.grpc_port}", True)
    assert reached.compute_url == f"{cloud.public_url}/compute/v1" == f"http://cloud:{cloud.http_port}/compute/v1"
    assert reached.credentials_file == cloud.write_credentials


def test_the_cloud_writes_the_key_that_masters_read_to_a_volume_of_theirs() -> None:
    folder = Path(simulator("cloud").cloud.write_credentials).parent
    assert f"credentials:{folder}" in SERVICES["cloud"]["volumes"]
    assert all(f"credentials:{folder}:ro" in SERVICES[name]["volumes"] for name in MASTERS)
    assert Path(HOME) in folder.parents
    assert str(folder) in (ROOT / "deploy" / "Dockerfile").read_text()


def test_the_fleet_is_in_the_regions_that_there_are() -> None:
    assert {cluster.location.rpartition("-")[0] for cluster in the_fleet().clusters} == set(REGIONS)


def test_every_address_is_that_of_a_service() -> None:
    for service in OURS:
        reported = environ(service)
        urls = [reported["TRADEWIND_NATS_URL"], *reported["TRADEWIND_API_URL"].split(",")]
        assert [host_of(url) for url in urls] == ["nats", *MASTERS]


def test_the_job_is_submitted_once_and_followed() -> None:
    service = SERVICES["submit"]
    lines = re.findall(r"tradewind ([^>&|]+)", " ".join(service["command"]))
    for line in lines:
        role, *arguments = shlex.split(line)
        assert parsed(role, [argument.replace("/etc/tradewind", "deploy/compose") for argument in arguments])
    assert [line.split()[0] for line in lines] == ["status", "logs", "submit"]
    assert "--follow" in lines[1] and "--wait" in lines[2]
    assert the_job().name == "char-transformer"
    assert service["volumes"] == ["./deploy/compose/job.yaml:/etc/tradewind/job.yaml:ro"]


def test_the_job_runs_what_is_in_the_image_and_all_regions_share_its_checkpoints() -> None:
    launch = the_job().launch
    assert launch.workdir is not None and launch.script is not None
    folder = Path(launch.workdir)
    here = ROOT / folder.relative_to(HOME)
    assert (here / Path(launch.script).name).is_file()
    checkpoints = f"{folder}/{launch.args[launch.args.index('--checkpoint') + 1]}"
    assert all(f"checkpoints:{checkpoints}" in SERVICES[name]["volumes"] for name in REGIONS)
    assert checkpoints in (ROOT / "deploy" / "Dockerfile").read_text()


def test_mounted_files_are_there() -> None:
    mounted = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    files = [volume.split(":")[0] for volume in mounted if volume.startswith("./")]
    assert files
    assert all((ROOT / name).is_file() for name in files)
    named = {volume.split(":")[0] for volume in mounted if not volume.startswith("./")}
    assert named == set(COMPOSE["volumes"])


def test_the_health_check_is_a_program_in_the_image() -> None:
    assert os.access(ROOT / "deploy" / "healthy", os.X_OK)
    assert "deploy/healthy /usr/local/bin/healthy" in (ROOT / "deploy" / "Dockerfile").read_text()

"""docs/compose.md: every command on the page refers to existing services and files."""

import re
import shlex
from urllib.parse import urlsplit

import pytest

from tests.deploy.test_compose import OURS, ROOT, SERVICES, parsed

PAGE = (ROOT / "docs" / "compose.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
TAKES_SERVICES = ("kill", "start")
STANDS_ALONE = ("docker compose up --build", "docker compose down --volumes")


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_names_what_there_is(line: str) -> None:
    words = shlex.split(line)
    match words:
        case ["docker", "compose", verb, *services] if verb in TAKES_SERVICES:
            assert services and set(services) <= set(SERVICES)
        case ["docker", "compose", "exec", service, "tradewind", role, *arguments]:
            assert service in OURS
            assert parsed(role, arguments)
        case ["curl", "-s", url]:
            place = urlsplit(url)
            published = [port.rpartition(":")[0] for each in SERVICES.values() for port in each.get("ports", [])]
            assert place.netloc in published
            assert place.path in ("/inventory", "/healthz")
        case _:
            assert line in STANDS_ALONE


def test_every_service_and_every_published_port_is_on_the_page() -> None:
    rows = " ".join(re.findall(r"^\| `.*$", PAGE, re.MULTILINE))
    for name, service in SERVICES.items():
        assert f"`{name}`" in rows
        assert all(port.split(":")[1] in rows for port in service.get("ports", []))


def test_the_header_of_the_file_shows_commands_of_the_page() -> None:
    header = re.findall(r"^#   (docker compose \S+ \S+)", (ROOT / "docker-compose.yml").read_text(), re.MULTILINE)
    assert header
    assert set(header) <= set(COMMANDS)


def test_the_readme_leads_here() -> None:
    assert "docs/compose.md" in (ROOT / "README.md").read_text()

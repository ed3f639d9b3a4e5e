"""The pages about the architecture name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = "agents|controlplane|deploy|messages|runtime|simulator|tests|tradewind"
PATH = re.compile(rf"`((?:{PACKAGES})/[\w/.-]*)`")


@pytest.mark.parametrize("page", ["architecture.md", "paths.md"])
def test_every_path_that_a_page_names_exists(page: str) -> None:
    named = PATH.findall((ROOT / "docs" / page).read_text())

    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_table_names_every_package_of_the_control_plane() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = {folder.name for folder in (ROOT / "controlplane").iterdir() if (folder / "__init__.py").exists()}

    assert {name for name in packages if f"{name}/`" not in page} == set()

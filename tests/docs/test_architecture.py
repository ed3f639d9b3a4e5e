"""The pages about the architecture name files and messages that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "controlplane", "messages", "runtime", "simulator", "tradewind")
FOLDERS = (*PACKAGES, "benchmarks", "deploy", "examples", "tests")
DRAWING = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`([\w/.*-]+(?:/|\.(?:json|md|py|sh|toml|yaml|yml)))`")
NAME = re.compile(r"`((?:[A-Z][a-z]+){2,})`")


def missing_files(page: str) -> Iterator[str]:
    """Yields paths that do not exist. One without a top-level folder starts in the folder of the last full path.

    A folder may also be beside that folder.
    """
    last = ROOT
    for path in PATH.findall(DRAWING.sub("", page)):
        if path.split("/")[0] in FOLDERS or (ROOT / path).exists():
            places = [ROOT]
            last = (ROOT / path) if path.endswith("/") else (ROOT / path).parent
        else:
            places = [last, last.parent] if path.endswith("/") else [last]
        if not any(any(place.glob(path)) for place in places):
            yield path


@pytest.mark.parametrize("page", ["architecture.md", "paths.md"])
def test_every_path_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()

    assert len(PATH.findall(text)) > 10
    assert list(missing_files(text)) == []


@pytest.mark.parametrize(
    ("page", "missing"),
    [
        ("`agents/cluster/learn.py`, then `reconcile.py` and `kubernetes/shell.py`", []),
        ("`agents/cluster/learn.py`, then `kubernetes/reconcile.py`", ["kubernetes/reconcile.py"]),
        ("`agents/cluster/learn.py`, then `live.py`", ["live.py"]),
        ("`agents/cluster/was.py`, `pyproject.toml`, `learn.py`", ["agents/cluster/was.py", "learn.py"]),
        ("`controlplane/budget/`, `ledger/`, `books.py`", ["books.py"]),
        ("`controlplane/ledger/`, `books.py`, `*_policy.py`", ["*_policy.py"]),
    ],
)
def test_a_short_path_starts_in_the_folder_of_the_last_full_one(page: str, missing: list[str]) -> None:
    assert list(missing_files(page)) == missing


def test_every_event_effect_and_message_that_the_page_names_is_a_class() -> None:
    named = set(NAME.findall((ROOT / "docs" / "architecture.md").read_text()))
    source = "\n".join(file.read_text() for folder in PACKAGES for file in (ROOT / folder).rglob("*.py"))
    classes = set(re.findall(r"^class (\w+)", source, re.MULTILINE))

    assert len(named) > 10
    assert named - classes == set()


def test_the_table_names_every_package_of_the_control_plane() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = {folder.name for folder in (ROOT / "controlplane").iterdir() if (folder / "__init__.py").exists()}

    assert {name for name in packages if f"{name}/`" not in page} == set()

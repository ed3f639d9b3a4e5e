"""docs/jobs.md and docs/planning.md: together they name every key of a job file and no other; their examples parse."""

import re
from pathlib import Path

import msgspec
import pytest

from messages.criteria import Capacity, Deadline, StepProfile, StepTime
from messages.jobs import Failures, JobSpec, Launch, Pod, Timeouts, Workers, contradictions
from runtime.errors import UserError
from runtime.yaml_files import load_yaml
from tradewind.client.jobfile import read_job

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "jobs.md").read_text()
PLANNING = (DOCS / "planning.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
STRUCTS: dict[str, type[msgspec.Struct]] = {
    "Top level": JobSpec,
    "`launch`": Launch,
    "`workers`": Workers,
    "`pod`": Pod,
    "`failures`": Failures,
    "`timeouts`": Timeouts,
}
MISTAKEN = """
name: My Job
launch: {scirpt: train.py}
workers: {max: 2, min: 4}
failures: {max: two}
"""


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def keys(text: str) -> set[str]:
    return {key for row in rows(text) for key in re.findall(r"`(\w+)`", row[0])}


@pytest.mark.parametrize("section", STRUCTS)
def test_every_key_has_a_row_and_every_row_is_a_key(section: str) -> None:
    assert keys(SECTIONS[section]) == set(STRUCTS[section].__struct_fields__)


def test_capacity_and_profile_are_whole_on_the_page_about_planning() -> None:
    for kind, name in ((Capacity, "capacity"), (StepProfile, "profile")):
        found = re.search(rf"^\| `{name}` \|[^\n]*\n(.*?)\n\n", PLANNING, re.DOTALL | re.MULTILINE)
        assert found is not None
        assert keys(found[1]) == set(kind.__struct_fields__)
    assert "`{hours, steps}`" in PLANNING and Deadline.__struct_fields__ == ("hours", "steps")
    assert all(f"`{name}`" in PLANNING for name in StepTime.__struct_fields__)


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    for section in ("`workers`", "`failures`", "`timeouts`"):
        made = STRUCTS[section]()
        for key, default, _ in rows(SECTIONS[section]):
            value = getattr(made, key.strip("`"))
            assert value in ((), None) if default in ("–", "automatic") else float(default) == value, key


def test_the_whole_example_parses_and_contradicts_itself_nowhere() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    spec = msgspec.convert(load_yaml(example, "the page"), JobSpec)
    assert contradictions(spec) == []
    assert spec.capacity is not None and spec.profile is not None


def test_two_lines_are_enough(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: mnist\nlaunch: {script: train.py}\n")
    assert "`name: mnist` and `launch: {script: train.py}`" in PAGE
    assert read_job(tmp_path / "job.yaml").workers == Workers()


def test_mistakes_say_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(MISTAKEN)
    with pytest.raises(UserError) as refused:
        read_job(Path("job.yaml"))
    error = refused.value
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    reported = [f"Error: {error.message}", *(f"  {line}" for line in error.problems), f"Try: {error.hint}"]
    assert shown.splitlines() == reported

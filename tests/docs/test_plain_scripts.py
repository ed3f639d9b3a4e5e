"""docs/plain-scripts.md: its example is a job, and what it names is there."""

import re
from pathlib import Path

import msgspec

import tradewind
from agents.cluster.settings import ClusterSettings
from agents.worker.environment import rank_environment
from controlplane.job import scripts as settling
from controlplane.job.state import UNKNOWN_COST_S
from messages.jobs import JobSpec, contradictions
from runtime.yaml_files import load_yaml
from tests.worker.builders import OWN, a_member, an_assignment
from tradewind.cli.local_commands import run

PAGE = (Path(__file__).parents[2] / "docs" / "plain-scripts.md").read_text()


def test_the_example_is_a_job() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert contradictions(msgspec.convert(load_yaml(example, "the page"), JobSpec)) == []


def test_every_option_variable_and_function_on_the_page_is_there() -> None:
    options = {option for parameter in run.params for option in parameter.opts}
    ours = {"--restart-args", "--checkpoint-path", "--preload", "--nproc-per-node", "--workers"}
    assert ours <= options
    assert all(option in PAGE for option in ours)
    environment = rank_environment(an_assignment(1), a_member(OWN, 0, 2), 0, {}, "errors")
    for name in re.findall(r"^\| `(T[A-Z_]+)`", PAGE, re.MULTILINE):
        assert name in environment
    assert all(hasattr(tradewind, name) for name in re.findall(r"`tradewind\.(\w+)\(", PAGE))
    assert "TRADEWIND_GPUS" in PAGE and "gpus" in ClusterSettings.__struct_fields__


def test_the_times_on_the_page_are_those_of_the_code() -> None:
    assert f"{settling.LIFE_IN_RESTARTS} times what a restart costs" in PAGE
    assert f"{settling.LIFE_AT_MOST_S / 60:g} minutes at most" in PAGE
    assert f"up to {settling.FRESH_S:g} s later" in PAGE
    assert f"assumes {UNKNOWN_COST_S:g} s" in PAGE

"""The table of gcloud's commands agrees with the installed SDK, which is read and never run."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.gcloud.syntax import GCLOUD, SWITCH


@pytest.fixture(scope="module")
def tree() -> dict[str, Any]:
    gcloud = shutil.which("gcloud")
    path = Path(gcloud).resolve().parents[1] / "data" / "cli" / "gcloud_completions.py" if gcloud else None
    if path is None or not path.exists():
        pytest.skip("the Google Cloud SDK is not installed")
    spec = importlib.util.spec_from_file_location("gcloud_completions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.STATIC_COMPLETION_CLI_TREE
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", GCLOUD)
def test_a_command_and_its_flags_are_those_of_the_sdk(tree: dict[str, Any], name: str) -> None:
    node, flags = tree, dict(tree["flags"])
    for word in name.split():
        node = node["commands"][word]
        flags |= node.get("flags", {})
    kinds = {flag: SWITCH if flags[flag] == "bool" else "a value" for flag in GCLOUD[name].flags}
    assert kinds == {flag: pattern and "a value" for flag, pattern in GCLOUD[name].flags.items()}

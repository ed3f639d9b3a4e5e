"""Which modules know which cloud."""

import re
from pathlib import Path

AGENTS = Path(__file__).parents[2] / "agents"
NAMES = re.compile(r"google|gke|gce|compute engine", re.IGNORECASE)


def test_agents_name_a_cloud_only_where_their_clouds_are() -> None:
    others = [file for file in AGENTS.rglob("*.py") if not file.is_relative_to(AGENTS / "clouds")]
    assert len(others) > 20
    assert [str(file.relative_to(AGENTS)) for file in others if NAMES.search(file.read_text())] == []

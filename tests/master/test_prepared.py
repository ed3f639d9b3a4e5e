"""Slow imports happen before the master has a lease, and only where they are needed."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from controlplane.master.settings import MasterSettings
from controlplane.master.leading import prepare
prepare(MasterSettings(fleet=sys.argv[1]))
print(" ".join(name for name in ("kubernetes_asyncio", "google.cloud.container_v1") if name in sys.modules))
"""


FLEET = Path(__file__).parents[2] / "examples" / "fleet-gke.yaml"


@pytest.mark.parametrize(("fleet", "loaded"), [(str(FLEET), "kubernetes_asyncio google.cloud.container_v1"), ("", "")])
def test_the_clients_of_clouds_are_loaded_ahead_where_there_is_a_fleet(fleet: str, loaded: str) -> None:
    reported = subprocess.run(
        [sys.executable, "-c", SCRIPT, fleet], capture_output=True, text=True, timeout=120, check=True
    )
    assert reported.stdout.strip() == loaded

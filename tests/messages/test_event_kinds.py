"""Events that programs recognize are those that the control plane announces."""

from pathlib import Path

import msgspec
import pytest

from messages.events import JOB_ENDS, Event, EventKind

CONTROL_PLANE = Path(__file__).parents[2] / "controlplane"


@pytest.fixture(scope="module")
def announced() -> str:
    return "\n".join(path.read_text() for path in CONTROL_PLANE.rglob("*.py"))


@pytest.mark.parametrize("kind", [kind for kind in EventKind if kind not in JOB_ENDS])
def test_a_kind_that_programs_recognize_is_announced(kind: EventKind, announced: str) -> None:
    assert f'"{kind}"' in announced or f"EventKind.{kind.name}" in announced


def test_a_kind_is_a_plain_word_on_the_bus() -> None:
    event = Event("mnist", EventKind.JOB_PAUSED, "the job is paused")
    assert msgspec.json.decode(msgspec.json.encode(event))["kind"] == "job_paused"
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event

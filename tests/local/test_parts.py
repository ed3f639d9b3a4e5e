"""Parts of the local stack restart when they end, a limited number of times."""

import asyncio
from pathlib import Path

import pytest

from runtime.errors import UserError
from tests.conftest import eventually
from tradewind.local import parts
from tradewind.local.parts import BusServer, StackFailed, keep

LAST = "ImportError: no module"


class FakePart:
    """Ends with each of the codes in turn, then lives."""

    name = "master"
    pid = 4711

    def __init__(self, log_file: Path, *codes: int) -> None:
        self.log_file = log_file
        self.starts = 1
        self._codes = [*codes]

    async def start(self) -> None:
        self.starts += 1

    async def wait_exit(self) -> int:
        if not self._codes:
            await asyncio.get_running_loop().create_future()
        return self._codes.pop(0)

    async def stop(self, grace_s: float) -> None:
        """Nothing to end."""


@pytest.fixture(autouse=True)
def without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "FIRST_BACKOFF_S", 0.0)


async def test_a_part_that_dies_is_started_again_and_that_is_said(tmp_path: Path) -> None:
    part, said = FakePart(tmp_path / "master.log", -9, 1), list[str]()
    keeping = asyncio.create_task(keep(part, said.append), name="keep")
    await eventually(lambda: part.starts == 3)
    keeping.cancel()
    await asyncio.wait({keeping})
    assert said == [parts.restart_text("master", -9), parts.restart_text("master", 1)]


async def test_a_part_that_cannot_live_is_given_up_with_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "master.log").write_text(f"one\n{LAST}\n")
    part = FakePart(tmp_path / "master.log", 1, 1, 1, 1, 1)
    with pytest.raises(StackFailed) as refused:
        await keep(part, lambda message: None)
    assert part.starts == 1 + parts.EARLY_AT_MOST
    assert refused.value.hint.endswith(f" {part.log_file}")
    assert refused.value.problems[-1] == LAST


@pytest.mark.parametrize("code", parts.FINAL_CODES)
async def test_a_mistake_of_a_person_is_not_tried_again(tmp_path: Path, code: int) -> None:
    part = FakePart(tmp_path / "master.log", code)
    with pytest.raises(UserError) as refused:
        await keep(part, lambda message: None)
    assert part.starts == 1
    assert "the master" in refused.value.message.lower()


def test_a_bus_that_was_not_started_is_no_process(tmp_path: Path) -> None:
    assert BusServer(tmp_path).pid == 0

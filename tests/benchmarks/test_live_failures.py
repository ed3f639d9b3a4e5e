"""A failed fleet is reported with the ends of its logs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from benchmarks import handover, join, loss
from benchmarks.live.fleet import Recipe
from benchmarks.live.report import Row
from benchmarks.stacks import StackFailed, own_folder

WHY = "no step within 30 s"
LOG = "no worker joined"


class Fleet:
    def scale(self, workers: int) -> None:
        pass


@contextmanager
def a_fleet(*_of: Any, **_how: Any) -> Iterator[Fleet]:
    with own_folder("tw-test-") as folder:
        Path(folder, "master.log").write_text(LOG)
        yield Fleet()


def fails(*_given: Any) -> NoReturn:
    raise StackFailed(WHY)


@pytest.mark.parametrize(
    ("where", "measure"),
    [
        ("handover.hand_over", lambda: handover.measure(3, (2,), (0.0,), Recipe())),
        ("join.join", lambda: join.measure(3, (2,), (0.0,), (25,), 50.0)),
        ("loss.lose", lambda: loss.measure(3, (2,), (0.0,), ("last",), Recipe())),
    ],
)
def test_the_first_failure_ends_the_rounds_and_is_told_with_the_logs(
    monkeypatch: pytest.MonkeyPatch, where: str, measure: Callable[[], list[Row]]
) -> None:
    monkeypatch.setattr(f"benchmarks.{where}", fails)
    monkeypatch.setattr(f"benchmarks.{where.partition('.')[0]}.live_fleet", a_fleet)
    (row,) = measure()
    assert row["number"] == 1
    assert row["problem"] == f"{WHY}\n--- master.log\n{LOG}"

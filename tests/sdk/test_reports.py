"""A step is reported once all ranks have it, with the generation and rank that computed it."""

import json
from typing import Any

from tradewind.sdk.agent.reports import Reports


class Heard:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, line: bytes) -> None:
        self.lines.append(json.loads(line))

    def steps(self) -> list[tuple[int, int, list[int]]]:
        return [
            (line["generation"], line["rank"], [reported["step"] for reported in line["reports"]])
            for line in self.lines
        ]


def test_the_newest_step_is_held_back_until_the_next_one_proves_it() -> None:
    heard = Heard()
    reports = Reports(heard)
    reports.add(0, 4.0, 12, generation=1, rank=2)
    assert heard.lines == []
    reports.add(1, 3.0, 12, generation=1, rank=2)
    assert heard.steps() == [(1, 2, [0])]
    assert heard.lines[0]["reports"][0] == {**heard.lines[0]["reports"][0], "loss": 4.0, "samples": 12}


def test_steps_are_reported_with_the_world_that_computed_them() -> None:
    heard = Heard()
    reports = Reports(heard)
    for step in range(3):
        reports.add(step, None, 12, generation=1, rank=2)
    for step in range(3, 5):
        reports.add(step, None, 16, generation=2, rank=1)
    reports.close()
    reported = [(generation, rank, step) for generation, rank, steps in heard.steps() for step in steps]
    assert reported == [(1, 2, 0), (1, 2, 1), (1, 2, 2), (2, 1, 3), (2, 1, 4)]

"""Which claim of the demonstration's report fails, and what its problem names."""

import re
from collections.abc import Callable
from typing import Any

from tradewind.demo.checks import CLAIMS
from tradewind.demo.cloud.checks import CLOUD_CLAIMS
from tradewind.demo.facts import Facts
from tradewind.demo.report import report_on


def fails(facts: Facts, check: Callable[..., Any], *values: object) -> None:
    """Asserts that this check fails, and no other, and that a problem names all the values."""
    report = report_on(facts)
    claims: dict[str, Callable[..., Any]] = {**CLAIMS, **(CLOUD_CLAIMS if facts.cloud is not None else {})}
    assert [claims[claim] for claim in claims if claim not in report.checks] == [check], report.failed_checks
    assert not report.ok
    assert names(report.failed_checks, *values), report.failed_checks


def names(problems: tuple[str, ...], *values: object) -> bool:
    """Whether one problem contains each of the values as a whole word or text."""
    return any(
        all(re.search(rf"(?<![\w.-]){re.escape(str(value))}(?![\w-])", problem) for value in values)
        for problem in problems
    )

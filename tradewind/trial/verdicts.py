"""The result of a check."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Result(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    SKIP = "SKIP"


@dataclass(frozen=True, slots=True)
class Verdict:
    result: Result
    text: str
    """The measured value; for a failure also what to do."""


def passed(text: str) -> Verdict:
    return Verdict(Result.PASS, text)


def failed(text: str) -> Verdict:
    return Verdict(Result.FAIL, text)


def skipped(text: str) -> Verdict:
    return Verdict(Result.SKIP, text)


def line_of(check: str, verdict: Verdict) -> str:
    return f"{verdict.result}  {check:<13} {' '.join(verdict.text.split())}"


def summary_of(verdicts: Sequence[Verdict]) -> str:
    count = {result: sum(each.result is result for each in verdicts) for result in Result}
    return f"{count[Result.PASS]} passed, {count[Result.FAIL]} failed, {count[Result.SKIP]} skipped"

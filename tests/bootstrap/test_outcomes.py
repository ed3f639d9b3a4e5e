import pytest

from controlplane.bootstrap.outcomes import TERMINATING, PassOutcome, outcome_of
from controlplane.clouds.outcomes import Busy, Refused, Throttled, Unreachable
from runtime.kubernetes.client import ApiUnavailable, refusal


def reported(status: int, message: str = "it said so", *causes: str) -> PassOutcome:
    is_temporary = status in (0, 401, 429) or status >= 500
    error = ApiUnavailable(message, status) if is_temporary else refusal(status, "", message, frozenset(causes))
    return outcome_of(error, "install the Secret tradewind/bus", "tw-eu")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, Unreachable),
        (400, Refused),
        (401, Refused),
        (403, Refused),
        (404, Busy),
        (409, Busy),
        (413, Refused),
        (422, Refused),
        (429, Throttled),
        (500, Unreachable),
        (503, Unreachable),
    ],
)
def test_each_answer_has_its_outcome_and_names_the_cluster(status: int, expected: type) -> None:
    outcome = reported(status)
    assert isinstance(outcome, expected)
    assert "tw-eu" in str(outcome)


def test_the_one_that_is_not_answered_is_told_where_to_look() -> None:
    error = "Connect call failed"
    outcome = reported(0, error)
    assert isinstance(outcome, Unreachable)
    assert error in outcome.detail
    assert "`authorized_networks`" in outcome.detail


def test_the_one_that_may_not_is_told_which_role_is_missing() -> None:
    error = 'User "me" cannot patch resource "secrets"'
    outcome = reported(403, error)
    assert isinstance(outcome, Refused)
    assert all(value in outcome.detail for value in ("Secret tradewind/bus", "tw-eu", error))
    assert "tw-eu" in outcome.hint and "roles/container.admin" in outcome.hint


def test_a_namespace_that_is_being_deleted_is_waited_for() -> None:
    assert isinstance(reported(403, "forbidden", TERMINATING), Busy)

"""What a joiner asks those that have the state."""

from tradewind.sdk.joining import Question


def test_a_joiner_asks_again_what_all_must_know_after_the_next_sum() -> None:
    question = Question()
    assert question.at(5, lambda: 50) == (5, 50)
    assert question.at(5, lambda: 51) == (5, 50)
    assert question.at(6, lambda: 60) == (5, 50)


def test_what_was_forgotten_since_is_asked_anew() -> None:
    question = Question()
    assert question.at(5, lambda: 50) == (5, 50)
    assert question.at(7, lambda: 70) == (7, 70)

from itertools import islice

from runtime.backoff import pauses


def test_pauses_grow_until_they_are_long_enough() -> None:
    assert list(islice(pauses(0.5, 3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_first_pause_is_never_longer_than_the_longest() -> None:
    assert list(islice(pauses(5.0, 3.0, growth=1.5), 2)) == [3.0, 3.0]

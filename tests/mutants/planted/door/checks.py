"""Checks that forget `rings`."""

from tests.mutants.planted.door.core import opens


def test_the_door_opens_from_18() -> None:
    assert [opens(age) for age in (17, 18, 19)] == [False, True, True]

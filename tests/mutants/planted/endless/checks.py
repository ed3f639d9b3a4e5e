"""A check that ends if the loop does."""

from tests.mutants.planted.endless.core import halve


def test_it_ends() -> None:
    halve(9)

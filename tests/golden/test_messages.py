"""The golden messages, which are the only whole sentences of the product that a test compares.

After an intended change, write them again and read the difference: python -m tests.golden
"""

import pytest

from tests.golden.cases import CASES
from tests.golden.golden_file import read


@pytest.mark.parametrize("name", CASES)
def test_a_message_is_as_stored(name: str) -> None:
    assert CASES[name]() == read()[name]


def test_the_file_has_a_message_of_every_case_and_no_other() -> None:
    assert [*read()] == [*CASES]

"""Bytes that are compared on both sides of a connection."""

import random

import pytest

from tradewind.sdk.training_state.tensor_bytes import checksum

LENGTHS = (0, 1, 7, 65_535, 65_536, 65_537, 200_003)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_same_bytes_have_the_same_checksum_wherever_they_lie(length: int) -> None:
    data = bytearray(random.Random(length).randbytes(length))
    for offset in range(8):
        elsewhere = bytearray(offset) + data
        assert checksum(memoryview(elsewhere)[offset:], 5) == checksum(data, 5)
    assert checksum(data, 5) != checksum(data, 6)


@pytest.mark.parametrize("length", LENGTHS[1:])
def test_any_one_wrong_bit_is_found(length: int) -> None:
    chance = random.Random(length)
    data = bytearray(chance.randbytes(length))
    right = checksum(data)
    for place in {0, length - 1, *(chance.randrange(length) for _ in range(50))}:
        bit = 1 << chance.randrange(8)
        data[place] ^= bit
        assert checksum(data) != right
        data[place] ^= bit


def test_pieces_that_changed_places_are_found() -> None:
    data = bytearray(random.Random(1).randbytes(4 * 65_536))
    swapped = data[65_536 : 2 * 65_536] + data[:65_536] + data[2 * 65_536 :]
    assert checksum(swapped) != checksum(data)

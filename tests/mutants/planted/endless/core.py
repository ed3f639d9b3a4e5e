"""A loop that does not end if its only statement is missing."""


def halve(number: float) -> None:
    while number:
        number //= 2

"""Two decisions, of which one is checked."""


def opens(age: int) -> bool:
    return age >= 18


def rings(hour: int) -> bool:
    return hour < 22

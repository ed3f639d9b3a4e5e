"""What tests read in messages for people."""

import re


def numbers(text: str) -> list[int]:
    """All whole numbers of a text, in order."""
    return [int(each.replace(",", "")) for each in re.findall(r"\d+(?:,\d{3})*", text)]

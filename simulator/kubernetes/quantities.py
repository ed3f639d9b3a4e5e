"""Quantities of Kubernetes: `100m`, `32Gi`, `1e3`."""

import re
from decimal import Decimal

_QUANTITY = re.compile(r"^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(m|n|u|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
_SCALES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def parse(text: object) -> Decimal:
    """The value of a quantity; raises ValueError for any other text."""
    parts = _QUANTITY.match(str(text).strip())
    if parts is None:
        raise ValueError(f"{text!r} is not a quantity")
    try:
        number = Decimal(parts[1])
    except ArithmeticError:
        raise ValueError(f"{text!r} is not a quantity") from None
    return number * _SCALES.get(parts[2] or "", Decimal(1))


def is_quantity(text: object) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True

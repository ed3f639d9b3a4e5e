"""Writes the golden messages: python -m tests.golden"""

from tests.golden.cases import CASES
from tests.golden.golden_file import write

if __name__ == "__main__":
    write({name: produce() for name, produce in CASES.items()})

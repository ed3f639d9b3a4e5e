"""What `tradewind` exports to scripts: there, typed, named in the documentation, and imported only when it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import tradewind
from tradewind.sdk import errors

PAGE = Path(__file__).parents[2] / "docs" / "training-scripts.md"
ERRORS = [name for name, value in vars(errors).items() if isinstance(value, type)]


@pytest.mark.parametrize("name", tradewind.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(tradewind, name).__name__ == name


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_exported_and_documented(name: str) -> None:
    assert name in tradewind.__all__
    assert f"| `tradewind.{name}` |" in PAGE.read_text()


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'tradewind'.*'nothing'"):
        getattr(tradewind, "nothing")  # noqa: B009


def test_certificates_and_errors_are_there_without_torch() -> None:
    code = "import sys, tradewind; tradewind.Certificate, tradewind.PeerLost; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

"""The fake master of the command tests."""

from tests.cli.conftest import master as master

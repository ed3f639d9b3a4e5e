"""The fake master is that of the command's tests."""

from tests.cli.conftest import master as master

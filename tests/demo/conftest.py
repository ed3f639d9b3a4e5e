from tests.cli.conftest import master

__all__ = ["master"]

"""The folder of a local stack is removed with it, but stays after a failure, and its path is printed."""

from pathlib import Path

import pytest

from runtime.errors import UserError
from tradewind.local.parts import StackFailed
from tradewind.local.stack import own_folder

WHY_IT_FAILED = "why it failed"


def folder_after(error: BaseException) -> tuple[Path, list[str]]:
    said: list[str] = []
    with pytest.raises(BaseExceptionGroup) as raised, own_folder(said.append, keep=False) as folder:
        (folder / "master.log").write_text(WHY_IT_FAILED)
        raise BaseExceptionGroup("of a task group", [error])
    assert raised.value.exceptions
    return folder, said


def test_what_a_failed_stack_wrote_is_kept_and_said_where() -> None:
    folder, said = folder_after(StackFailed("The master did not become ready:"))
    assert (folder / "master.log").read_text() == WHY_IT_FAILED
    assert len(said) == 1 and said[0].endswith(f" {folder}")
    (folder / "master.log").unlink()
    folder.rmdir()


@pytest.mark.parametrize("error", [UserError("There is no script train.py."), KeyboardInterrupt()])
def test_after_anything_else_nothing_is_left(error: BaseException) -> None:
    folder, said = folder_after(error)
    assert (folder.exists(), said) == (False, [])


def test_what_somebody_asked_to_keep_is_kept() -> None:
    said: list[str] = []
    with own_folder(said.append, keep=True) as folder:
        pass
    assert folder.exists() and said
    folder.rmdir()

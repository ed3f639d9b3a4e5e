"""Invalid options of the trial, and the error of a program that fails."""

import errno
import os
from pathlib import Path

import pytest

from runtime.errors import UserError
from tradewind.trial.__main__ import main
from tradewind.trial.commands import Ran, output_of


@pytest.mark.parametrize(
    ("option", "value", "reported"),
    [
        ("--scarce", "a2-highgpu-1g/us-central1-a", "'a2-highgpu-1g/us-central1-a'"),
        ("--scarce", "a//b", "'a//b'"),
        ("--max-usd", "nan", "'nan'"),
        ("--max-usd", "-1", "'-1'"),
        ("--max-usd", "inf", "'inf'"),
    ],
)
def test_a_value_that_cannot_be_right_is_refused(
    option: str, value: str, reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--fleet", "f", "--job", "j", "--log", str(tmp_path / "log"), option, value])
    message = capsys.readouterr().err.splitlines()[-1]
    assert (ended.value.code, f"argument {option}: {reported}" in message) == (2, True)


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "missing" / "log"
    assert main(["run", "--fleet", "f", "--job", "j", "--log", str(log)]) == 2
    message = capsys.readouterr().err
    assert all(value in message for value in (f"log {log}", os.strerror(errno.ENOENT), "--log"))


def test_a_fleet_file_that_is_not_there_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = tmp_path / "nope.yaml"
    assert main(["run", "--fleet", str(fleet), "--job", "j", "--log", str(tmp_path / "log")]) == 2
    [message, todo] = capsys.readouterr().err.splitlines()
    assert str(fleet) in message and todo.startswith("Next: ")


def test_the_error_of_gcloud_is_reported_without_the_advice_after_it() -> None:
    error = "(gcloud.services.list) You have no active account."
    advice = "\nPlease run:\n\n  $ gcloud auth login\n"
    with pytest.raises(UserError) as caught:
        output_of(Ran(1, "", f"ERROR: {error}{advice}"), "list")
    assert str(caught.value).endswith(f" list: {error}")


def test_a_program_that_fails_without_output_is_reported_with_its_exit_code() -> None:
    with pytest.raises(UserError, match=r"list: .* 3$"):
        output_of(Ran(3, "", ""), "list")

"""Options of the trial that cannot be right, and what is said of a program that fails."""

from pathlib import Path

import pytest

from runtime.errors import UserError
from tradewind.trial.__main__ import main
from tradewind.trial.commands import Ran, output_of


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--scarce", "a2-highgpu-1g/us-central1-a", "is not MACHINE/GPU/ZONE"),
        ("--scarce", "a//b", "is not MACHINE/GPU/ZONE"),
        ("--max-usd", "nan", "is not an amount above 0"),
        ("--max-usd", "-1", "is not an amount above 0"),
        ("--max-usd", "inf", "is not an amount above 0"),
    ],
)
def test_a_value_that_cannot_be_right_is_refused(
    option: str, value: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--fleet", "f", "--job", "j", "--log", str(tmp_path / "log"), option, value])
    assert (ended.value.code, told in capsys.readouterr().err) == (2, True)


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "missing" / "log"
    assert main(["run", "--fleet", "f", "--job", "j", "--log", str(log)]) == 2
    assert f"The log {log} cannot be written: No such file or directory." in capsys.readouterr().err


def test_a_fleet_file_that_is_not_there_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = tmp_path / "nope.yaml"
    assert main(["run", "--fleet", str(fleet), "--job", "j", "--log", str(tmp_path / "log")]) == 2
    assert capsys.readouterr().err == f"There is no file {fleet}\nNext: give the path of a file that is there\n"


def test_the_error_of_gcloud_is_said_and_not_the_advice_after_it() -> None:
    text = "ERROR: (gcloud.services.list) You have no active account.\nPlease run:\n\n  $ gcloud auth login\n"
    with pytest.raises(UserError, match=r"^cannot list: \(gcloud.services.list\) You have no active account.$"):
        output_of(Ran(1, "", text), "list")


def test_a_program_that_fails_without_a_word_is_told_by_its_exit_code() -> None:
    with pytest.raises(UserError, match="cannot list: exit code 3"):
        output_of(Ran(3, "", ""), "list")

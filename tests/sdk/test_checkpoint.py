"""A checkpoint exists whole or not at all, and no failure to write one stops the training."""

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tradewind.sdk.checkpoints import Checkpoints, Saved, not_written

Make = Callable[..., Checkpoints]
UNPICKLABLE = "cannot pickle '_thread.lock' object"
"""Python's error for the state that tests cannot write."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Checkpoints] = []

    def checkpoints(every_steps: int = 10, keep: int = 2) -> Checkpoints:
        made.append(Checkpoints(tmp_path / "saved", every_steps, keep))
        return made[-1]

    yield checkpoints
    for each in made:
        each.close()


def payload(step: int) -> dict[str, Any]:
    return {"step": step, "weights": torch.arange(100.0) + step, "certificate": {"steps": step, "resumed_at": [1]}}


def saved_steps(checkpoints: Checkpoints) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in checkpoints.folder.glob("step-*.pt"))


class Picky:
    """An object that is not plain data. Pickling it waits until the test allows it."""

    held = threading.Event()
    reached = threading.Event()

    def __reduce__(self) -> tuple[type["Picky"], tuple[()]]:
        Picky.reached.set()
        Picky.held.wait(20)
        return Picky, ()


@pytest.fixture
def picky() -> Iterator[Picky]:
    Picky.held.clear()
    Picky.reached.clear()
    yield Picky()
    Picky.held.set()


def test_what_was_saved_is_loaded(make: Make) -> None:
    checkpoints = make()
    assert checkpoints.newest() is None
    for step in (10, 9):
        checkpoints.save(step, payload(step))
    newest = make().newest()
    assert newest is not None and newest.step == 10
    loaded = checkpoints.load(newest)
    assert torch.equal(loaded.pop("weights"), payload(10)["weights"])
    assert loaded == {"step": 10, "certificate": {"steps": 10, "resumed_at": [1]}}


def test_states_that_are_no_plain_data_are_loaded_too(make: Make, picky: Picky) -> None:
    Picky.held.set()
    saved = make().save(10, {"other": picky})
    assert saved is not None and make().newest() == saved
    assert isinstance(make().load(saved)["other"], Picky)


def test_old_ones_go_when_the_new_one_is_safe(make: Make) -> None:
    checkpoints = make(keep=2)
    for step in (10, 20, 30, 40):
        checkpoints.save(step, payload(step))
    assert saved_steps(checkpoints) == [30, 40]


def test_an_unreadable_newer_one_never_costs_a_readable_one(make: Make) -> None:
    checkpoints = make(keep=1)
    for step in (10, 20):
        checkpoints.save(step, payload(step))
    damaged = checkpoints.folder / "step-000000000090.pt"
    damaged.write_bytes(b"half of a check")
    assert (
        checkpoints.save(30, payload(30))
        == checkpoints.newest()
        == Saved(30, checkpoints.folder / "step-000000000030.pt")
    )
    assert saved_steps(checkpoints) == [30, 90]


def test_a_truncated_or_damaged_one_is_skipped_for_the_one_before(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoints = make()
    older, newer = (checkpoints.save(step, payload(step)) for step in (10, 20))
    assert older is not None and newer is not None
    whole = newer.path.read_bytes()
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        newer.path.write_bytes(whole[:cut])
        assert checkpoints.newest() == older
        printed = capfd.readouterr().err
        assert printed.count("\n") == 1 and str(newer.path) in printed
    newer.path.write_bytes(whole)
    assert checkpoints.newest() == newer
    assert capfd.readouterr().err == ""


def test_no_single_wrong_bit_is_ever_loaded(make: Make) -> None:
    checkpoints = make()
    saved = checkpoints.save(10, payload(10))
    assert saved is not None
    whole = saved.path.read_bytes()
    chance = random.Random(4)
    for at in chance.sample(range(len(whole)), 300):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        saved.path.write_bytes(damaged)
        assert checkpoints.newest() is None, f"byte {at}"


def test_checksums_are_written_even_if_the_script_turned_them_off(make: Make) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        saved = make().save(10, payload(10))
        assert not torch.serialization.get_crc32_options()
    finally:
        torch.serialization.set_crc32_options(True)
    assert saved is not None and make().newest() == saved


def test_other_files_in_the_folder_are_left_alone(make: Make) -> None:
    checkpoints = make(keep=1)
    (checkpoints.folder / "notes.txt").write_text("mine")
    (checkpoints.folder / "step-last.pt").write_text("mine too")
    for step in (10, 20):
        checkpoints.save(step, payload(step))
    assert {path.name for path in checkpoints.folder.iterdir()} == {
        "notes.txt",
        "step-last.pt",
        "step-000000000020.pt",
    }


def test_what_a_killed_process_left_half_written_is_cleared(make: Make) -> None:
    checkpoints = make()
    (checkpoints.folder / "step-000000000010.elsewhere-17.tmp").write_bytes(b"half")
    assert checkpoints.newest() is None
    checkpoints.save(20, payload(20))
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-000000000020.pt"]


def test_one_that_is_offered_is_written_in_the_background(make: Make) -> None:
    checkpoints = make()
    checkpoints.offer(10, payload(10))
    assert checkpoints.flush(timeout_s=20)
    newest = checkpoints.newest()
    assert newest is not None and newest.step == 10


def test_only_the_newest_offer_waits_while_one_is_written(make: Make, picky: Picky) -> None:
    checkpoints = make(keep=9)
    checkpoints.offer(10, {"other": picky})
    assert Picky.reached.wait(20)
    for step in (20, 30, 40):
        checkpoints.offer(step, payload(step))
    assert not checkpoints.flush(timeout_s=0.01)
    Picky.held.set()
    assert checkpoints.flush(timeout_s=20)
    assert saved_steps(checkpoints) == [10, 40]


def test_closing_writes_what_was_offered(make: Make) -> None:
    checkpoints = make()
    checkpoints.offer(10, payload(10))
    checkpoints.close()
    assert saved_steps(checkpoints) == [10]


def test_checkpoints_are_due_at_whole_multiples_of_the_interval(make: Make) -> None:
    checkpoints = make(every_steps=10)
    assert [step for step in range(35) if checkpoints.is_due(step)] == [10, 20, 30]


@pytest.mark.parametrize(("every_steps", "keep"), [(0, 2), (10, 0)])
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, every_steps: int, keep: int) -> None:
    with pytest.raises(ValueError, match=rf"\({every_steps}\).*\({keep}\).* 1$"):
        Checkpoints(tmp_path, every_steps, keep)


def test_what_cannot_be_written_is_warned_of_once_for_each_reason(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoints = make()
    checkpoints.save(10, payload(10))
    for step in (20, 30):
        assert checkpoints.save(step, {"lock": threading.Lock()}) is None
    assert capfd.readouterr().err == f"tradewind: {not_written(20, checkpoints.folder, UNPICKLABLE, 10)}\n"
    checkpoints.save(40, payload(40))
    checkpoints.save(50, {"lock": threading.Lock()})
    assert capfd.readouterr().err == f"tradewind: {not_written(50, checkpoints.folder, UNPICKLABLE, 40)}\n"
    assert not list(checkpoints.folder.glob("*.tmp"))


def test_a_folder_that_cannot_be_made_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(NotADirectoryError):
        Checkpoints(tmp_path / "file" / "saved", every_steps=1)


def test_a_folder_that_was_removed_is_made_again(make: Make) -> None:
    checkpoints = make()
    checkpoints.folder.rmdir()
    assert checkpoints.newest() is None
    assert checkpoints.save(10, payload(10)) == checkpoints.newest()


FULL_DISK = """
import resource, sys
import torch
from tradewind.sdk.checkpoints import Checkpoints

checkpoints = Checkpoints(sys.argv[1], every_steps=1)
checkpoints.save(1, {"weights": torch.zeros(10)})
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
for step in (2, 3):
    checkpoints.offer(step, {"weights": torch.zeros(1_000_000)})
    assert checkpoints.flush(20)
checkpoints.offer(4, {"weights": torch.zeros(10)})
print("trained on")
"""


def test_a_full_disk_costs_a_warning_and_no_training(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FULL_DISK)
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "saved")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "trained on\n")
    assert ended.stderr == f"tradewind: {not_written(2, tmp_path / 'saved', os.strerror(errno.EFBIG), 1)}\n"
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "step-000000000001.pt",
        "step-000000000004.pt",
    ]

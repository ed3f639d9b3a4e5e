"""Checkpoints that a script writes without reporting them."""

import os
from pathlib import Path

from agents.worker.checkpoints import ENTRIES_AT_MOST, Watched, look_at, watched_path
from agents.worker.events import CheckpointReported, CheckpointWritten, TrainersStopped
from messages.ids import Generation
from messages.jobs import Launch
from messages.workers import WrittenCheckpoint
from tests.worker.builders import (
    OWN,
    WITH_US,
    a_halt,
    a_member,
    a_training_worker,
    a_warm_worker,
    an_assignment,
)


def a_watch(path: Path) -> Watched:
    return Watched(Generation(1), look_at(path))


def looks(watch: Watched, path: Path, times: int = 3) -> list[bool]:
    return [watch.is_written(look_at(path)) for _ in range(times)]


def test_what_is_there_already_is_no_new_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_bytes(b"old")
    assert looks(a_watch(tmp_path), tmp_path) == [False, False, False]


def test_a_new_file_counts_once_when_it_has_stayed_the_same(tmp_path: Path) -> None:
    watch = a_watch(tmp_path / "ckpt.pt")
    (tmp_path / "ckpt.pt").write_bytes(b"new")
    assert looks(watch, tmp_path / "ckpt.pt", 5) == [False, False, True, False, False]


def test_a_checkpoint_that_is_still_being_written_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-500"
    watch = a_watch(tmp_path)
    folder.mkdir()
    seen = []
    for size in range(1, 6):
        (folder / "model.safetensors").write_bytes(b"x" * size)
        seen.append(watch.is_written(look_at(tmp_path)))
    assert seen == [False] * 5
    assert looks(watch, tmp_path) == [False, True, False]


def test_a_file_in_a_folder_that_is_written_over_counts(tmp_path: Path) -> None:
    file = tmp_path / "ckpt.pt"
    file.write_bytes(b"same size")
    watch = a_watch(tmp_path)
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))
    assert looks(watch, tmp_path) == [True, False, False]


def test_a_path_that_vanishes_is_no_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "ckpt.pt"
    file.write_bytes(b"there")
    watch = a_watch(file)
    file.unlink()
    assert looks(watch, file) == [False, False, False]


def test_a_path_that_no_file_can_have_is_no_checkpoint() -> None:
    assert look_at(Path("a\0b")) == (0, 0, 0)


def test_of_a_folder_with_very_many_entries_only_some_are_looked_at(tmp_path: Path) -> None:
    for number in range(ENTRIES_AT_MOST + 1):
        (tmp_path / str(number)).touch()
    assert look_at(tmp_path)[2] == ENTRIES_AT_MOST


def test_a_checkpoint_is_told_at_once_and_counted_in_the_status() -> None:
    story = a_training_worker(2)
    story.happens(CheckpointReported(story.now_s, Generation(2)))
    assert (story.facts, story.sent.status.checkpoints) == (["ready"], 1)


def test_a_checkpoint_of_another_world_teaches_nothing_and_the_next_world_counts_from_0() -> None:
    story = a_training_worker(2)
    story.happens(CheckpointReported(story.now_s, Generation(1)))
    assert story.state.progress.checkpoints == 0
    story.happens(CheckpointReported(story.now_s, Generation(2)))
    story.hears(a_halt(3)).happens(TrainersStopped(story.now_s, Generation(2)))
    assert (story.state.generation, story.state.progress.checkpoints) == (3, 0)


def test_a_checkpoint_that_the_script_writes_when_it_is_ended_is_known_and_does_not_count() -> None:
    story = a_training_worker(2).hears(a_halt(3))
    story.happens(CheckpointReported(story.now_s, Generation(2), 70.0))
    assert (story.state.progress.checkpoints, story.state.progress.checkpoint) == (0, WrittenCheckpoint(at=70.0))


def test_a_checkpoint_of_which_only_the_time_is_known_does_not_hide_one_of_the_sdk() -> None:
    story = a_training_worker(2)
    story.happens(CheckpointWritten(story.now_s, WrittenCheckpoint(8, "/kept", 60.0)))
    story.happens(CheckpointReported(story.now_s, Generation(2), 70.0))
    assert (story.state.progress.checkpoints, story.state.progress.checkpoint) == (
        1,
        WrittenCheckpoint(8, "/kept", 60.0),
    )


def test_only_the_worker_with_rank_0_looks_and_only_where_the_job_names_a_path() -> None:
    launch = Launch(script="train.py", workdir="/data", checkpoint_path="out")
    first = a_warm_worker().hears(an_assignment(1, a_member(OWN, 0, 2), launch=launch)).forks()
    assert watched_path(first.state) == Path("/data/out")
    second = a_warm_worker().hears(an_assignment(1, *WITH_US, launch=launch)).forks()
    assert watched_path(second.state) is None
    assert watched_path(a_training_worker().state) is None

"""The folder of checkpoints shows which steps are recomputed, after any number of losses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tradewind.sdk.certificate import Certificate, Digest, Life
from tradewind.sdk.checkpoints import Journal, Saving

SAMPLES = Digest(8, 1)
Live = Callable[[int], Certificate]


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """A run with a checkpoint every 50 steps, from where the last one was lost until it is lost with step `last`."""

    def life(last: int) -> Certificate:
        certificate = Certificate()
        saving = Saving(tmp_path, every_steps=50, payload=certificate.as_dict)

        def restore(payload: dict[str, Any]) -> None:
            certificate.take_over(Certificate.from_dict(payload))

        restored = saving.restore(restore)
        if restored is not None:
            certificate.resumed(*restored)
        for step in range(certificate.due, last + 1):
            certificate.check(step, SAMPLES, SAMPLES)
            saving.committed(step)
            saving._checkpoints.flush(20)
        return certificate

    return life


def test_a_run_that_is_lost_again_before_its_next_checkpoint_repeats_more_than_one_that_is_not(live: Live) -> None:
    live(80)
    live(60)
    certificate = live(99)
    assert (certificate.steps, certificate.resumed_at) == (100, (50, 50))
    assert certificate.recomputed == 10 + 30, "50 to 59 three times, 60 to 79 twice"


def test_a_run_that_is_lost_before_its_first_checkpoint_repeats_from_the_start(live: Live) -> None:
    live(30)
    certificate = live(40)
    assert (certificate.steps, certificate.recomputed, certificate.resumed_at) == (41, 30, (0,))


def test_a_checkpoint_between_two_losses_counts_nothing_twice(live: Live) -> None:
    live(80)
    live(120)
    certificate = live(200)
    assert (certificate.steps, certificate.resumed_at) == (201, (50, 100))
    assert certificate.recomputed == 30 + 20


def test_a_run_that_is_new_has_resumed_nowhere(live: Live) -> None:
    assert live(10).resumed_at == ()


def test_the_one_that_writes_next_continues_in_the_same_life(tmp_path: Path) -> None:
    lost, first, second, joined, reader = (Journal(tmp_path / "lives") for _ in range(5))
    assert lost.begin_another() == []
    for end in range(8):
        lost.reached(end)
    assert first.begin_another() == second.begin_another() == [Life(0, 7)]
    for writer, end in ((first, 5), (first, 6), (second, 7), (joined, 8)):
        writer.reached(end)
    assert reader.begin_another() == [Life(0, 7), Life(5, 8)]

"""When the failure of a silent controller counts, and when it is over."""

from controlplane.capacity.silence_policy import LOOKS, Announce, Block, PodSeen, Silence, SilenceEffect, decide
from controlplane.capacity.start_policy import SURE_AFTER_S
from messages.clusters import StartFailure
from tests.capacity.builders import US

BEGAN_S = 100.0
DENIED = StartFailure("ImagePullBackOff", "403 Forbidden", "acme/tradewind:1", "system-1")


class Story:
    def __init__(self) -> None:
        self.silence = Silence(US, BEGAN_S)

    def sees(self, failure: StartFailure | None, after_s: float, heard_s: float | None = None) -> list[SilenceEffect]:
        decision = decide(self.silence, PodSeen(BEGAN_S + after_s, failure, heard_s), lambda image: f"grant {image}")
        self.silence = decision.state
        return list(decision.effects)


def test_a_failure_counts_only_after_a_while_and_is_announced_once() -> None:
    story = Story()
    assert story.sees(DENIED, SURE_AFTER_S - 1) == []
    assert [type(effect) for effect in story.sees(DENIED, SURE_AFTER_S)] == [Block, Announce]
    assert [type(effect) for effect in story.sees(DENIED, SURE_AFTER_S + 10)] == [Block]


def test_another_reason_is_announced_too() -> None:
    story = Story()
    story.sees(DENIED, SURE_AFTER_S)
    missing = StartFailure("ErrImagePull", "manifest unknown", "acme/tradewind:1", "system-1")
    assert [type(effect) for effect in story.sees(missing, SURE_AFTER_S + 10)] == [Block, Announce]


def test_a_look_without_an_answer_keeps_the_last_failure() -> None:
    story = Story()
    story.sees(DENIED, 1.0)
    assert [type(effect) for effect in story.sees(None, SURE_AFTER_S)] == [Block, Announce]
    for _ in range(LOOKS - 1):
        assert not story.silence.is_over
        story.sees(None, SURE_AFTER_S + 1)
    assert story.silence.is_over


def test_a_silence_without_a_known_failure_is_over_at_once() -> None:
    story = Story()
    assert story.sees(None, 1.0) == []
    assert story.silence.is_over


def test_only_a_word_since_the_silence_began_ends_it() -> None:
    story = Story()
    story.sees(DENIED, 1.0, heard_s=BEGAN_S - 1)
    assert not story.silence.is_over
    assert story.sees(DENIED, SURE_AFTER_S, heard_s=BEGAN_S + 2) == []
    assert story.silence.is_over

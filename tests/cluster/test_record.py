"""The controller's record on a real server, when somebody deletes or purges it."""

from agents.cluster.events import KnownLost, SaveFailed, StopAsked
from agents.cluster.shell import KnownRecord
from agents.cluster.state import Known, is_at_rest
from messages import subjects
from messages.ids import ClusterName
from runtime.bus import Bus
from tests.cluster.builders import a_controller_with

CLUSTER = ClusterName("local")


async def test_a_purge_shows_in_the_record(bus: Bus) -> None:
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    record = KnownRecord(bucket, CLUSTER, "i1")
    assert not await record.is_lost(), "what was never written is not lost"
    await record.save(Known("i1"))
    assert not await record.is_lost()
    await bus._link.jetstream.purge_stream(f"KV_{subjects.STATE_BUCKET}")
    assert await record.is_lost()


def test_a_controller_whose_record_is_lost_saves_it_again() -> None:
    story = a_controller_with(2)
    known = story.state.saving.saved
    story.saves = False
    story.happens(KnownLost(story.now_s))
    assert story.state.saving.saved is None
    assert story.state.saving.under_way == known
    assert story.started == [], "nobody is started for what is there"


def test_a_controller_that_stops_is_not_at_rest_until_its_record_is_saved() -> None:
    story = a_controller_with(1)
    uid = story.uids[0]
    story.happens(StopAsked(story.now_s, "SIGTERM"))
    assert not is_at_rest(story.state), "its place has not ended"
    story.saves = False
    story.ends(uid)
    assert not is_at_rest(story.state), "the save is under way"
    story.happens(SaveFailed(story.now_s, "no answer"))
    assert not is_at_rest(story.state), "the save failed"
    story.saves = True
    story.after(1.0)
    assert uid not in {place.uid for place in story.saved.places}
    assert is_at_rest(story.state)

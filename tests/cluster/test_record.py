"""The controller's record on a real server, when somebody deletes or purges it."""

from agents.cluster.events import KnownLost
from agents.cluster.shell import KnownRecord
from agents.cluster.state import Known
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

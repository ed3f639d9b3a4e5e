"""The key of the lease has an unreadable value, on a real server."""

import asyncio

import pytest

from controlplane.lease.keeper import Leadership, hold
from controlplane.lease.state import LeaseSettings
from messages import subjects
from tests.conftest import Connect, eventually
from tests.stored.hostile import DEEP_OBJECT

SHORT = LeaseSettings(ttl_s=1)


VALUES = [
    pytest.param(b'{"holder":"\xff","since":1}', id="text"),
    pytest.param(DEEP_OBJECT, id="deep"),
]


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES)
async def test_masters_continue_and_one_of_them_leads_when_the_value_is_overdue(connect: Connect, value: bytes) -> None:
    buses = {name: await connect(name) for name in "ab"}
    bucket = await buses["a"].bucket(subjects.STATE_BUCKET)
    acting: list[str] = []
    epochs: list[int] = []

    async def work(leadership: Leadership) -> None:
        name = f"epoch {leadership.epoch}"
        assert not acting, "two lead at once"
        acting.append(name)
        epochs.append(leadership.epoch)
        try:
            await asyncio.Event().wait()
        finally:
            acting.remove(name)

    async with asyncio.TaskGroup() as tasks:
        holding = [
            tasks.create_task(hold(bus.settings, name, work, settings=SHORT), name=f"hold/{name}")
            for name, bus in buses.items()
        ]
        await eventually(lambda: len(epochs) == 1, what="one to lead")
        hostile = await bucket.put(subjects.LEADER_KEY, value)
        await eventually(lambda: len(epochs) == 2, what="one to lead again")
        assert epochs[1] > hostile
        assert not any(task.done() for task in holding)
        for task in holding:
            task.cancel()

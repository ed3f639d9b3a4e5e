"""From the states of an allocator to observations about zones."""

from controlplane.allocator import events
from controlplane.allocator.effects import CreatePool, RemoveNodes
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import new_allocator
from controlplane.capacity.zone_observations import LIVED_EVERY_S, Watch, observe
from controlplane.catalog.memory import Granted, Lived, Observation, QuotaRefused, StockedOut, Taken
from controlplane.clouds.outcomes import QuotaExceeded
from controlplane.clouds.outcomes import StockedOut as NoStock
from controlplane.throughput.use import NodeUse
from messages.criteria import Objective
from tests.allocator.planned_stage import a_running_stage, offer_in
from tests.allocator.stage import JOB, US, Stage, a_full_stage, a_stage, of
from tests.planning.builders import IOWA_A, IOWA_B

HERE, BESIDE = offer_in(IOWA_A), offer_in(IOWA_B)
AT = 1_800_000_000.0


class Looks:
    """A watch over a stage that looks when a test calls it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.watch = Watch()
        self.at = AT

    def look(self) -> list[Observation]:
        self.watch, seen = observe(self.watch, self.stage.allocator, self.stage.now_s, self.at)
        return list(seen)


def test_machines_that_were_asked_for_and_came_are_told_with_the_time_that_it_took() -> None:
    stage = a_stage(HERE, wanted=2)
    looks = Looks(stage)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    assert looks.look() == []
    stage.now_s += 90.0
    stage.ends(create)
    stage.fills(HERE)
    stage.sees()
    assert looks.look() == [Granted(IOWA_A, "L4", AT, 90.0)] * 2
    assert looks.look() == []


def test_what_a_master_finds_when_it_begins_was_not_granted_now() -> None:
    stage = a_full_stage(HERE, wanted=2)
    heir = Stage(new_allocator(JOB, (HERE,), wanted=2, at_s=500.0), now_s=500.0, cloud=stage.cloud)
    heir.machines = stage.machines
    looks = Looks(heir)
    heir.ticks()
    heir.lists()
    heir.sees()
    assert looks.look() == []
    heir.takes(f"{IOWA_A}-1")
    heir.now_s += 60.0
    heir.sees()
    assert looks.look() == [Taken(IOWA_A, "L4", AT, 60.0)]


def test_a_machine_that_the_cloud_took_has_lived_as_long_as_it_was_there() -> None:
    stage = a_full_stage(HERE, BESIDE, wanted=2)
    looks = Looks(stage)
    looks.look()
    stage.takes(f"{IOWA_A}-2")
    stage.now_s += 300.0
    stage.sees()
    assert looks.look() == [Taken(IOWA_A, "L4", AT, 300.0)]


def test_one_under_the_same_name_is_another_machine() -> None:
    stage = a_full_stage(HERE, wanted=1)
    looks = Looks(stage)
    looks.look()
    stage.takes(f"{IOWA_A}-1")
    stage.fills(HERE)
    stage.now_s += 120.0
    stage.sees()
    assert {type(each) for each in looks.look()} == {Granted, Taken}


def test_a_machine_that_was_noticed_counts_as_taken_once() -> None:
    stage = a_full_stage(HERE, BESIDE, wanted=1)
    looks = Looks(stage)
    looks.look()
    stage.now_s += 200.0
    stage.notices(f"{IOWA_A}-1")
    assert looks.look() == [Taken(IOWA_A, "L4", AT, 200.0)]
    stage.takes(f"{IOWA_A}-1")
    stage.sees()
    assert looks.look() == []


def test_a_machine_that_we_gave_back_was_not_taken() -> None:
    stage = a_full_stage(HERE, wanted=2)
    looks = Looks(stage)
    looks.look()
    stage.now_s += 100.0
    stage.wants(1)
    [removal] = of(stage.releases(f"{IOWA_A}-2"), RemoveNodes)
    assert looks.look() == []
    stage.ends(removal)
    assert looks.look() == [Lived(IOWA_A, "L4", AT, 100.0)]
    stage.sees()
    assert looks.look() == []


def test_the_machines_of_a_job_that_has_ended_were_not_taken() -> None:
    stage = a_full_stage(HERE, wanted=1)
    looks = Looks(stage)
    looks.look()
    stage.job_ends("done")
    stage.takes(f"{IOWA_A}-1")
    stage.sees()
    assert [type(each) for each in looks.look()] == [Lived]


def test_nor_were_those_of_a_cluster_of_which_nothing_is_heard() -> None:
    stage = a_full_stage(HERE, wanted=1)
    looks = Looks(stage)
    looks.look()
    stage.loses_cluster(US)
    assert [type(each) for each in looks.look()] == [Lived]


def test_a_machine_that_runs_is_told_of_now_and_then_so_that_its_life_counts() -> None:
    stage = a_full_stage(HERE, wanted=1)
    looks = Looks(stage)
    looks.look()
    stage.now_s += LIVED_EVERY_S - 1
    assert looks.look() == []
    stage.now_s += 1
    assert looks.look() == [Lived(IOWA_A, "L4", AT, LIVED_EVERY_S)]
    stage.takes(f"{IOWA_A}-1")
    stage.now_s += 50.0
    stage.sees()
    assert looks.look() == [Taken(IOWA_A, "L4", AT, 50.0)]


def test_a_zone_without_machines_and_one_beyond_the_quota_are_told_apart() -> None:
    stage = a_stage(HERE, BESIDE, wanted=1)
    looks = Looks(stage)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    [beside] = of(stage.ends(create, NoStock("none left")), CreatePool)
    assert looks.look() == [StockedOut(IOWA_A, "L4", AT)]
    stage.ends(beside, QuotaExceeded("no more"))
    assert looks.look() == [QuotaRefused(IOWA_B, "L4", AT)]
    assert looks.look() == []


def test_machines_on_demand_say_nothing_of_spot_ones() -> None:
    stage = a_full_stage(offer_in(IOWA_A, spot=False), wanted=2)
    assert Looks(stage).look() == []


def test_a_machine_that_was_of_too_little_use_has_lived_until_it_was_given_back() -> None:
    brief = AllocatorSettings(idle_timeout_s=60.0)
    stage = a_running_stage(HERE, settings=brief, min_workers=2, objective=Objective.THROUGHPUT, min_utilisation=0.5)
    looks = Looks(stage)
    looks.look()
    for _ in range(2):
        stage.happens(events.UseSeen(stage.now_s, (NodeUse(US, f"{IOWA_A}-1", 0.1),)))
        stage.now_s += 60.0
    assert stage.allocator.leaving == {US: {f"{IOWA_A}-1"}}
    assert looks.look() == []
    [remove] = of(stage.releases(f"{IOWA_A}-1"), RemoveNodes)
    assert looks.look() == []
    stage.ends(remove)
    assert looks.look() == [Lived(IOWA_A, "L4", AT, 120.0)]

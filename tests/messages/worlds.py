"""Random worlds, and the changes that may follow each other."""

import random

from msgspec import structs

from messages.ids import ClusterName, Generation, JobName, Range, Rank, WorkerId
from messages.jobs import Launch
from messages.worlds import Assignment, Entry, Hyperparameters, LiveWorld, Member, StoreAddress

JOB = JobName("job")
Seat = tuple[str, str, str, str, int]
"""Region, zone, worker, cluster, slots: sorted, this is the order of ranks."""


def a_seat(chance: random.Random) -> Seat:
    region, zone = chance.choice("abc"), chance.choice("xy")
    slots = chance.choice((1, 1, 1, 2, 8))
    return region, zone, f"w{chance.getrandbits(32):08x}-{chance.getrandbits(16):04x}", f"c-{region}-{zone}", slots


def seats_for(chance: random.Random, count: int, slots: int | None = None) -> list[Seat]:
    seats = [a_seat(chance) for _ in range(count)]
    return sorted((*seat[:4], slots) if slots is not None else seat for seat in seats)


def a_world(
    generation: int,
    seats: list[Seat],
    *,
    live: LiveWorld | None = None,
    batch: int | None = None,
    why: str = "a test",
    restarts: int = 0,
) -> Assignment:
    members = []
    first = 0
    for number, (region, zone, worker, cluster, ranks) in enumerate(sorted(seats)):
        address = f"10.{len(worker) % 200}.{number % 256}.{number // 256}"
        place = ClusterName(cluster), region, zone
        members.append(Member(WorkerId(worker), *place, _address(worker, address), number, Rank(first), ranks))
        first += ranks
    even, more = divmod(batch, first) if batch is not None else (0, 0)
    shares = tuple(even + (rank < more) for rank in range(first)) if batch is not None else ()
    return Assignment(
        job=JOB,
        generation=Generation(generation),
        world_size=first,
        members=tuple(members),
        store=StoreAddress("10.0.0.1", 29400 + generation % 100, f"g{generation}"),
        launch=Launch(script="train.py", args=("--epochs", "3"), env={"B": "1", "A": "2"}),
        stop_grace_s=5,
        why=why,
        hyperparameters=Hyperparameters(global_batch=batch, shares=shares, learning_rate=0.1, given={"x": 1.0, "n": 2}),
        restarts=restarts,
        live=live,
    )


def repaired(chance: random.Random, base: Assignment, generation: int, seats: list[Seat]) -> Assignment:
    """As a repair would make it, with some ranks behind and some that hold only part of their share."""
    world = a_world(generation, seats, batch=base.hyperparameters.global_batch, why=f"{len(seats)} workers are here")
    before = {member.worker: member for member in base.members}
    previous: list[int] = []
    for member in world.members:
        old = before.get(member.worker)
        previous += [
            old.first_rank + local if old is not None and local < old.ranks else -1 for local in range(member.ranks)
        ]
    mood = chance.choice(("all", "some", "none", "odd"))
    held = tuple(_held(chance, mood, base, rank) for rank in previous)
    laggards = tuple(Rank(rank) for rank, old in enumerate(previous) if old >= 0 and chance.random() < 0.1)
    stay = {member.worker for member in world.members}
    live = LiveWorld(
        Entry.REPAIR,
        tuple(previous),
        leaving_workers=tuple(member.worker for member in base.members if member.worker not in stay),
        resume=chance.randrange(1000),
        source=Rank(chance.randrange(world.world_size)),
        laggards=laggards,
        held=held,
    )
    return structs.replace(world, live=live)


def planned(base: Assignment, generation: int, seats: list[Seat]) -> Assignment:
    world = repaired(random.Random(0), base, generation, seats)
    assert world.live is not None
    live = LiveWorld(Entry.PLANNED, world.live.previous, world.live.leaving_workers)
    return structs.replace(world, live=live)


def changed(chance: random.Random, seats: list[Seat], *, most: int = 5) -> list[Seat]:
    """Some are lost, some join, and now and then one comes back elsewhere."""
    stay = chance.sample(seats, max(1, len(seats) - chance.randint(0, most)))
    stay += [a_seat(chance) for _ in range(chance.randint(0, most))]
    if chance.random() < 0.3:
        moved = stay.pop(chance.randrange(len(stay)))
        stay.append((chance.choice("abc"), *moved[1:]))
    return sorted(stay)


def _address(worker: str, default: str) -> str:
    return f"10.1.{int(worker[1:3], 16)}.{int(worker[3:5], 16)}" if worker.startswith("w") else default


def _held(chance: random.Random, mood: str, base: Assignment, rank: int) -> tuple[Range, ...]:
    if rank < 0 or mood == "none" or (mood == "some" and chance.random() < 0.5):
        return ()
    if mood == "odd" and chance.random() < 0.3:
        start = chance.randrange(100)
        return ((start, start + 3), (start + 5, start + 6))
    even, more = divmod(base.hyperparameters.global_batch or 1000, base.world_size)
    first = rank * even + min(rank, more)
    return ((first, first + even + (rank < more)),)

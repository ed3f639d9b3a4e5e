"""The worlds that a worker-agent holds in memory, so that it needs only deltas. Pure.

A delta whose base is unknown, or whose result has the wrong digest, gives None: the agent must fetch the world.
"""

from collections import OrderedDict

from messages.compact_worlds import Digest, StoredAssignment, World, WorldReference, assignment_of, world_of
from messages.decoding import NotStorable, Undecodable
from messages.world_deltas import AssignmentDelta, WrongBase, apply
from messages.worlds import Assignment

MAX_WORLDS = 3
"""Number of worlds in memory: the obeyed one, the pending one, and an abandoned one."""
SENDERS_BYTES_PER_S = 1.2e9
"""Bytes of documents that a server sends in a second to all workers of a world that fetch it together."""


class WorldCache:
    def __init__(self) -> None:
        self._whole: list[Assignment] = []
        """Assignments that were received whole and are not converted to columns yet."""
        self._worlds: OrderedDict[Digest, World] = OrderedDict()
        self._assignments: dict[Digest, Assignment] = {}

    def hear(self, message: Assignment | AssignmentDelta | StoredAssignment) -> Assignment | None:
        """Returns the assignment of a message; None if it must be fetched."""
        if isinstance(message, Assignment):
            self._whole = [*self._whole, message][-MAX_WORLDS:]
            return message
        known = self.find(message.world)
        if known is not None or isinstance(message, StoredAssignment):
            return known
        base = self._find(message.base)
        if base is None:
            return None
        try:
            return self.hold(apply(message, base))
        except (WrongBase, Undecodable):
            return None

    def find(self, reference: WorldReference) -> Assignment | None:
        world = self._find(reference.digest)
        return self._assignments[world.digest] if world is not None else None

    def hold(self, world: World) -> Assignment:
        """Stores a world and returns its assignment. Raises `Undecodable`."""
        assignment = assignment_of(world.columns)
        self._add(world, assignment)
        return assignment

    def _find(self, digest: Digest) -> World | None:
        for assignment in self._whole:
            try:
                self._add(world_of(assignment), assignment)
            except NotStorable:
                continue
        self._whole = []
        return self._worlds.get(digest)

    def _add(self, world: World, assignment: Assignment) -> None:
        self._worlds[world.digest] = world
        self._assignments[world.digest] = assignment
        self._worlds.move_to_end(world.digest)
        while len(self._worlds) > MAX_WORLDS:
            digest, _ = self._worlds.popitem(last=False)
            del self._assignments[digest]


def spread_s(world: WorldReference) -> float:
    """Seconds over which the members of a world spread their fetches, so that the server can answer all of them."""
    return world.members * world.size / SENDERS_BYTES_PER_S

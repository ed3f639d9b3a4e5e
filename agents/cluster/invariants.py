"""What must hold after every event."""

from agents.cluster.state import ClusterState, Place, Stage


def check(before: ClusterState, after: ClusterState) -> list[str]:
    """Returns a message for each broken invariant."""
    return [
        *_only_forward(before, after),
        *_no_more_than_asked(before, after),
        *_uids_are_new(before, after),
        *_no_revival(before, after),
        *_saved_before_started(before, after),
        *_no_starts_before_sync(before, after),
        *_silence_needs_bus(before, after),
        *_bounded(after),
    ]


def _only_forward(before: ClusterState, after: ClusterState) -> list[str]:
    found = []
    if (before.cluster, before.incarnation) != (after.cluster, after.incarnation):
        found.append("the controller became another one")
    if not before.sending.seq <= after.sending.seq <= before.sending.seq + 1:
        found.append(f"the topology's seq went from {before.sending.seq} to {after.sending.seq}")
    led, leads = before.leadership, after.leadership
    if leads.epoch < led.epoch and leads.claim == led.claim:
        found.append(f"the epoch went back from {led.epoch} to {leads.epoch}, and nobody claimed to lead")
    if leads.claim is not None and leads.epoch > leads.claim:
        found.append(f"epoch {leads.epoch} was obeyed, and the newest claim to lead is {leads.claim}")
    if after.places_made < before.places_made:
        found.append(f"places made went back from {before.places_made} to {after.places_made}")
    found += [
        f"place {uid} was to be ended and no longer is"
        for uid, place in before.places.items()
        if place.ending is not None and (now := after.places.get(uid)) is not None and now.ending is None
    ]
    return found


def _no_more_than_asked(before: ClusterState, after: ClusterState) -> list[str]:
    """Checks new places only: a lower count ends no place."""
    found = []
    for job in sorted({place.job for place in _new_of_ours(before, after)}):
        wanted = after.wanted.get(job)
        live, count = len(after.live(job)), wanted.count if wanted is not None else 0
        if live > count:
            found.append(f"a place was added for {job}, which makes {live} where {count} are wanted")
        if after.stopping:
            found.append(f"a place was added for {job} while stopping")
    return found


def _uids_are_new(before: ClusterState, after: ClusterState) -> list[str]:
    made = _new_of_ours(before, after)
    found = [f"uid {place.uid} was used before" for place in made if place.uid in before.tombstones]
    if len(made) > after.places_made - before.places_made:
        found.append(f"{len(made)} places are new, {after.places_made - before.places_made} were counted")
    return found


def _no_revival(before: ClusterState, after: ClusterState) -> list[str]:
    tombstoned = after.gone
    return [
        f"worker {place.id} is gone and listed as alive"
        for place in after.places.values()
        if place.left_at_s is None and (place.id in after.tombstones or place.id in tombstoned)
    ] + [f"place {uid} has ended and is back" for uid in after.places if uid in before.tombstones]


def _saved_before_started(before: ClusterState, after: ClusterState) -> list[str]:
    """Checks only new starts: somebody may delete the record while a start is under way."""
    saved = {place.uid for place in after.saving.saved.places} if after.saving.saved is not None else set()
    asked = {uid for uid, place in before.places.items() if place.stage is Stage.ASKED}
    return [
        f"place {place.uid} was started before it was saved"
        for place in after.places.values()
        if place.stage is Stage.ASKED and place.uid not in saved | asked
    ]


def _no_starts_before_sync(before: ClusterState, after: ClusterState) -> list[str]:
    if after.synced:
        return []
    asked = [place.uid for place in after.places.values() if place.stage is Stage.ASKED]
    planned = [place.uid for place in _new_of_ours(before, after)]
    return [f"place {uid} was planned or started before all that exists was seen" for uid in (*asked, *planned)]


def _silence_needs_bus(before: ClusterState, after: ClusterState) -> list[str]:
    fell_silent = [
        place.id
        for uid, place in after.places.items()
        if place.silent and (was := before.places.get(uid)) is not None and not was.silent
    ]
    if fell_silent and not after.link.connected:
        return [f"{worker} was marked as silent while the bus was away" for worker in fell_silent]
    return []


def _bounded(after: ClusterState) -> list[str]:
    rules = after.rules
    sizes = {
        "gone workers": (len(after.gone), rules.gone_at_most),
        "tombstones": (len(after.tombstones), rules.tombstones_at_most),
        "workers kept": (sum(wanted.count for wanted in after.wanted.values()), rules.max_workers),
    }
    return [f"{size} {what}, at most {limit}" for what, (size, limit) in sizes.items() if size > limit]


def _new_of_ours(before: ClusterState, after: ClusterState) -> list[Place]:
    """Returns the places that this decision added, without those that were found alive."""
    fresh = (Stage.PLANNED, Stage.ASKED)
    return [place for uid, place in after.places.items() if place.stage in fresh and uid not in before.places]

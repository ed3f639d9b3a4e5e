"""A lease keeps its invariants for any sequence of events, and leads only by a write of its own."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.lease import events
from controlplane.lease.decide import decide
from controlplane.lease.effects import Lead, WriteKey
from controlplane.lease.events import LeaseEvent
from controlplane.lease.invariants import check
from controlplane.lease.state import new_lease

HOLDERS = st.sampled_from([None, "me", "other"])
ATTEMPTS = st.integers(0, 8)
REVISIONS = st.integers(0, 12)
AT = st.just(0.0)
PULSES = st.sampled_from([0.0, 0.5, 9.0, 20.0]).map(lambda age_s: -age_s)
"""Seconds before the event."""
AFTER_S = st.sampled_from([0.0, 0.05, 0.1, 0.5, 0.7, 1.6, 2.5])

EVENTS: st.SearchStrategy[LeaseEvent] = st.one_of(
    st.builds(events.Ticked, AT, PULSES),
    st.builds(events.KeySeen, AT, REVISIONS, HOLDERS),
    st.builds(events.KeyRead, AT, ATTEMPTS, REVISIONS, HOLDERS),
    st.builds(events.KeyForgotten, AT),
    st.builds(events.Written, AT, ATTEMPTS, REVISIONS),
    st.builds(events.Conflicted, AT, ATTEMPTS),
    st.builds(events.Unanswered, AT, ATTEMPTS, st.just("away")),
    st.builds(events.BusLost, AT),
    st.builds(events.BusBack, AT),
    st.builds(events.WorkEnded, AT),
)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(AFTER_S, EVENTS), max_size=40))
def test_invariants_hold_whatever_happens(happened: list[tuple[float, LeaseEvent]]) -> None:
    lease, now_s = new_lease("me"), 0.0
    sent_s: dict[int, float] = {}
    for after_s, event in happened:
        now_s += after_s
        before = lease
        event = replace(event, at_s=now_s)
        if isinstance(event, events.Ticked):
            event = replace(event, pulse_s=now_s + event.pulse_s)
        decision = decide(before, event)
        lease = decision.state
        assert check(before, lease, decision.effects, now_s) == []
        assert decision.why
        assert decision.wake_at_s is None or decision.wake_at_s > now_s
        for effect in decision.effects:
            if isinstance(effect, WriteKey):
                sent_s[effect.attempt] = now_s
            if isinstance(effect, Lead):
                assert isinstance(event, events.Written)
                assert now_s < sent_s[event.attempt] + lease.settings.ttl_s - lease.settings.margin_s

"""docs/protocol.md is complete: every kind, every subject, every kept key and every counted reason is on the page."""

import inspect
import re
from pathlib import Path

from messages import subjects
from messages.codec import RejectedReason
from messages.envelope import KINDS, Envelope
from messages.ids import ClusterName, JobName, Rank, WorkerId

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| (`tradewind\.|\(reply\))", line)
]

SAMPLES: dict[str, object] = {
    "cluster": ClusterName("cluster"),
    "worker": WorkerId("worker"),
    "job": JobName("job"),
    "rank": Rank(0),
    "scope": "scope",
    "kind": "kind",
}


def _built_subjects() -> set[str]:
    """Every subject the code can build, with the page's placeholders in it."""
    built = set()
    for name, function in inspect.getmembers(subjects, inspect.isfunction):
        if (
            name.startswith(("_", "parse"))
            or name.endswith(("_key", "_keys", "_chunks"))
            or function.__module__ != subjects.__name__
        ):
            continue
        facts = subjects.WORKER_FACTS if name == "worker_fact" else ("",)
        for fact in facts:
            arguments = [fact if p == "fact" else SAMPLES[p] for p in inspect.signature(function).parameters]
            built.add(_with_placeholders(function(*arguments)))
    return built


def _with_placeholders(subject: str) -> str:
    if subject == "tradewind.event.scope.kind":
        return "tradewind.event.<job or fleet>.<kind>"
    area, *rest = subject.removeprefix("tradewind.").split(".")
    named = {"cluster": "<cluster>", "worker": "<worker>", "job": "<job>", "0": "<rank>"}
    return ".".join(["tradewind", area, *(named.get(token, token) for token in rest)])


def test_every_kind_has_a_row_that_says_who_sends_it_and_what_its_loss_means() -> None:
    assert {row[1].strip("`") for row in ROWS} == set(KINDS)
    assert all(len(row) == 5 and all(row) and "→" in row[2] for row in ROWS)


def test_every_subject_that_can_be_built_is_on_the_page_and_no_other() -> None:
    assert {row[0].strip("`") for row in ROWS} - {"(reply)"} == _built_subjects()


def test_every_field_of_the_envelope_is_explained() -> None:
    for name in Envelope.__struct_fields__:
        assert f"`{name}`" in PAGE


def test_every_reason_to_drop_a_payload_is_named() -> None:
    for reason in RejectedReason:
        assert f"`{reason}`" in PAGE


def test_every_kept_key_is_on_the_page() -> None:
    for key in (
        subjects.spec_key(JobName("job")),
        subjects.record_key(JobName("job")),
        subjects.known_key(ClusterName("cluster")),
        subjects.memory_key("<zone>"),
        subjects.LEADER_KEY,
    ):
        shown = key.replace(".job.", ".<job>.").replace(".cluster.", ".<cluster>.")
        assert f"`{shown}`" in PAGE
    assert subjects.EVENTS_STREAM in PAGE and subjects.LOGS_STREAM in PAGE

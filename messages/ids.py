"""Types of ids and bounded numbers, and the rule for names that become part of a subject."""

import re
from typing import Annotated, NewType

from msgspec import Meta

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
_NAME = re.compile(NAME_PATTERN)

# Decoding bounds all numbers, so an absurd number is a malformed message, never a crash.
Counted = Annotated[int, Meta(ge=0, le=2**53)]
"""A count, step or generation. Up to 2**53, because JSON readers in other languages represent such numbers exactly."""
Slots = Annotated[int, Meta(ge=1, le=64)]
Ranks = Annotated[int, Meta(ge=0, le=1_000_000)]
Duration = Annotated[float, Meta(ge=0, le=1e9)]
Range = tuple[Counted, Counted]
"""From the first to before the last."""
UnixSeconds = Annotated[float, Meta(ge=0, le=1e11)]

JobName = NewType("JobName", str)
ClusterName = NewType("ClusterName", str)
WorkerId = NewType("WorkerId", str)
Generation = NewType("Generation", Counted)
Rank = NewType("Rank", Ranks)
Epoch = NewType("Epoch", Counted)

NO_GENERATION = Generation(0)
"""Before the first world."""
NO_EPOCH = Epoch(0)
"""Before any master."""

Name = Annotated[str, Meta(pattern=NAME_PATTERN, description="lower-case letters, digits and '-', at most 63")]


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None

"""Ids by type, and the one rule for names that become part of a subject."""

import re
from typing import Annotated, NewType

from msgspec import Meta

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
_NAME = re.compile(NAME_PATTERN)

JobName = NewType("JobName", str)
ClusterName = NewType("ClusterName", str)
WorkerId = NewType("WorkerId", str)
Generation = NewType("Generation", int)
Rank = NewType("Rank", int)
Epoch = NewType("Epoch", int)

NO_GENERATION = Generation(0)
"""Before the first world."""
NO_EPOCH = Epoch(0)
"""Before any master."""

Name = Annotated[str, Meta(pattern=NAME_PATTERN, description="lower-case letters, digits and '-', at most 63")]


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None

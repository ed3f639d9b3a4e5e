"""Everything that a trainer's core may ask its shell to do."""

from dataclasses import dataclass

from tradewind.protocol.trainer import Assign, Status


@dataclass(frozen=True, slots=True)
class Report:
    """Send the status to the agent, before the next decision."""

    status: Status


@dataclass(frozen=True, slots=True)
class StartBuild:
    """Build the process group of this world, outside of the training thread."""

    assign: Assign


@dataclass(frozen=True, slots=True)
class CutGroups:
    """Shut the connections of all groups below this generation, so that their collectives fail."""

    below: int


@dataclass(frozen=True, slots=True)
class RetireGroups:
    """Drop the groups below this generation after a while: peers may still be in their last collective."""

    below: int


@dataclass(frozen=True, slots=True)
class Switch:
    """Let the training thread continue in the world that all ranks were ready for, or leave."""

    generation: int


TrainerEffect = Report | StartBuild | CutGroups | RetireGroups | Switch

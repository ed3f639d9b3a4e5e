"""What the master and a store process say to each other: one JSON object a line, over the child's stdin and stdout."""

from msgspec import Struct


class Start(Struct, frozen=True, tag="start"):
    """Serve a fresh store for this generation on a free port of the range; older ones are dropped a moment later."""

    generation: int
    host: str
    """The IPv4 address to listen on."""
    port_from: int
    port_to: int


class Watch(Struct, frozen=True, tag="watch"):
    """Tell with `Met` when all ranks have come, with `Waiting` if some wait for others for longer than `meet_s`."""

    generation: int
    world_size: int
    meet_s: float


class Warm(Struct, frozen=True, tag="warm"):
    """torch is imported: a start takes milliseconds from now on."""


class Started(Struct, frozen=True, tag="started"):
    generation: int
    port: int


class Failed(Struct, frozen=True, tag="failed"):
    generation: int
    why: str


class Waiting(Struct, frozen=True, tag="waiting"):
    """These ranks have come to the store and still wait for the others."""

    generation: int
    waiting: tuple[int, ...]
    missing: tuple[int, ...]


class Met(Struct, frozen=True, tag="met"):
    """All ranks of the generation have come to the store."""

    generation: int


Command = Start | Watch
Report = Warm | Started | Failed | Waiting | Met

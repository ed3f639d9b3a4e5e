"""Messages between the master and a store process: one JSON object per line, over the child's stdin and stdout."""

from msgspec import Struct


class Start(Struct, frozen=True, tag="start"):
    """Starts a new store for this generation on a free port of the range, and drops older ones a moment later."""

    generation: int
    host: str
    """IPv4 address to listen on."""
    port_from: int
    port_to: int


class Watch(Struct, frozen=True, tag="watch"):
    """Requests `Met` when all ranks have come, and `Waiting` if some wait for others for longer than `meet_s`."""

    generation: int
    world_size: int
    meet_s: float


class Warm(Struct, frozen=True, tag="warm"):
    """torch is imported, so that a start takes milliseconds."""


class Started(Struct, frozen=True, tag="started"):
    generation: int
    port: int


class Failed(Struct, frozen=True, tag="failed"):
    generation: int
    why: str


class Waiting(Struct, frozen=True, tag="waiting"):
    """Some ranks have come to the store and wait for the missing ones."""

    generation: int
    waiting: tuple[int, ...]
    missing: tuple[int, ...]


class Met(Struct, frozen=True, tag="met"):
    """All ranks of the generation have come to the store."""

    generation: int


Command = Start | Watch
Report = Warm | Started | Failed | Waiting | Met

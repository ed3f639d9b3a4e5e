"""Addresses for pods and nodes."""

from runtime.errors import TradewindError

_HOSTS = 250
_AT_MOST = _HOSTS * _HOSTS


class Addresses:
    """Assigns a loopback address to each pod, or the same address to all."""

    def __init__(self, fixed: str, second: int) -> None:
        """`second` is the second number of the addresses; each region has its own."""
        self._fixed = fixed
        self._second = second
        self._next = 0
        self._taken: set[str] = set()

    def take(self) -> str:
        if self._fixed:
            return self._fixed
        for _ in range(_AT_MOST):
            self._next = (self._next + 1) % _AT_MOST
            address = f"127.{self._second}.{self._next // _HOSTS}.{self._next % _HOSTS + 2}"
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise TradewindError(f"all {_AT_MOST} addresses of the region are in use")

    def give_back(self, address: str) -> None:
        self._taken.discard(address)

import pytest

from runtime.errors import TradewindError
from simulator.kubelet.addresses import Addresses


def test_every_pod_has_an_address_of_its_own_and_one_that_is_given_back_serves_again() -> None:
    addresses = Addresses("", 70)
    every = {addresses.take() for _ in range(250 * 250)}
    assert len(every) == 250 * 250
    assert all(address.startswith("127.70.") for address in every)
    with pytest.raises(TradewindError, match=str(250 * 250)):
        addresses.take()
    addresses.give_back("127.70.3.9")
    assert addresses.take() == "127.70.3.9"


def test_where_all_pods_share_an_address_it_is_never_used_up() -> None:
    addresses = Addresses("10.0.0.7", 70)
    assert [addresses.take(), addresses.take()] == ["10.0.0.7", "10.0.0.7"]

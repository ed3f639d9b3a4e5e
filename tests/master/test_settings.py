import pytest

from controlplane.api.access import is_loopback
from controlplane.master.settings import (
    MasterSettings,
    advertised_url,
    check,
    read_master_settings,
    store_place,
)
from runtime.errors import UserError


def test_settings_come_from_the_environment_and_flags_win() -> None:
    environ = {
        "TRADEWIND_NATS_URL": "nats://10.0.0.1:4222",
        "TRADEWIND_API_PORT": "9000",
        "TRADEWIND_STORE_PORTS": "1-2",
    }
    settings = read_master_settings(environ, {"api_port": 9001, "nats_url": None})
    assert settings.bus.url == "nats://10.0.0.1:4222"
    assert settings.bus.name.startswith("master/")
    assert (settings.api_host, settings.api_port, settings.store_ports) == ("127.0.0.1", 9001, "1-2")


def test_a_flag_names_the_bus() -> None:
    assert read_master_settings({}, {"nats_url": "nats://other:1"}).bus.url == "nats://other:1"


def test_every_problem_is_named_by_its_variable() -> None:
    with pytest.raises(UserError) as refused:
        read_master_settings({"TRADEWIND_API_PORT": "many"})
    assert any("TRADEWIND_API_PORT" in problem for problem in refused.value.problems)


def test_the_api_does_not_listen_elsewhere_without_a_token() -> None:
    with pytest.raises(UserError, match=r" 0\.0\.0\.0 "):
        check(MasterSettings(api_host="0.0.0.0"))
    check(MasterSettings(api_host="0.0.0.0", api_token="secret"))
    check(MasterSettings())


@pytest.mark.parametrize("text", ["29400", "29499-29400", "0-10", "1-70000", "a-b", ""])
def test_a_bad_range_of_ports_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"^{text!r} ") as refused:
        store_place(MasterSettings(store_ports=text))
    assert "--store-ports" in refused.value.hint


def test_stores_listen_where_they_are_reached_unless_told_otherwise() -> None:
    here = store_place(MasterSettings(store_host="10.0.0.5", store_ports="29400-29401"))
    assert (here.host, here.bind, here.port_from, here.port_to) == ("10.0.0.5", "10.0.0.5", 29400, 29401)
    behind = store_place(MasterSettings(store_host="stores.example", store_bind="0.0.0.0"))
    assert (behind.host, behind.bind) == ("stores.example", "0.0.0.0")


def test_loopback_is_recognised() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "10.0.0.1", "example.org", "", "::"))


@pytest.mark.parametrize(
    ("api_host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8801"),
        ("0.0.0.0", "http://master:8801"),
        ("::", "http://master:8801"),
        ("::1", "http://[::1]:8801"),
    ],
)
def test_the_api_is_advertised_where_others_reach_it(api_host: str, url: str) -> None:
    assert advertised_url(MasterSettings(api_host=api_host, store_host="master"), 8801) == url

"""Addresses: which lead to this machine alone, and how a server that listens on one is reached."""

from __future__ import annotations

import pytest

from pallas.addresses import is_everywhere, is_loopback, reachable


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.9", "::1", "::1%lo", "::ffff:127.0.0.1", "localhost"])
def test_these_are_reached_from_this_machine_alone(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "::ffff:10.0.0.1",
        "fe80::1%lo",
        "localhost.example",
        "127.0.0.1.example",
        "127.1",
    ],
)
def test_these_may_be_reached_from_elsewhere(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "host, here, elsewhere",
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("10.0.0.7", "10.0.0.7", "10.0.0.7"),
        ("box.example", "box.example", "box.example"),
        ("fd00::1", "[fd00::1]", "[fd00::1]"),
        ("[fd00::1]", "[fd00::1]", "[fd00::1]"),
        ("0.0.0.0", "127.0.0.1", "machine-a"),
        ("", "127.0.0.1", "machine-a"),
        ("*", "127.0.0.1", "machine-a"),
        ("::", "[::1]", "machine-a"),
        ("[::]", "[::1]", "machine-a"),
    ],
)
def test_a_server_is_reached_where_it_listens(host: str, here: str, elsewhere: str) -> None:
    assert reachable(host) == here
    assert reachable(host, "machine-a") == elsewhere
    assert is_everywhere(host.strip("[]")) == (here != elsewhere)

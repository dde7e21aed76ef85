"""What an address says about where it leads: to this machine alone, or how to reach a server that listens on it.

Decides by the text alone; no name is ever resolved.
"""

from __future__ import annotations

import ipaddress

_EVERY_IPV6 = "::"
_EVERYWHERE = frozenset({"", "*", "0.0.0.0", _EVERY_IPV6})  # noqa: S104  (compared, not bound)


def is_loopback(host: str) -> bool:
    """Whether `host`, an address or `localhost`, is reached from this machine alone."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_everywhere(host: str) -> bool:
    """Whether a server that listens on `host` listens on every address of its machine."""
    return host in _EVERYWHERE


def reachable(host: str, machine: str = "") -> str:
    """Where a server that listens on `host` is reached, as it stands in a URL.

    For one that listens everywhere that is `machine`, a name other machines know; without one, a loopback address.
    """
    host = host.removeprefix("[").removesuffix("]")
    if is_everywhere(host):
        # For IPv6 not 127.0.0.1: some servers listen there for IPv6 alone.
        return machine or ("[::1]" if host == _EVERY_IPV6 else "127.0.0.1")
    return f"[{host}]" if ":" in host else host

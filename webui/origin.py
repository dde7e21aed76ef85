"""Decides whether a request may have come from a page of ours, from its Host, Origin and Sec-Fetch headers alone.

A browser sends what it is told to by any page; a cookie or a loopback address proves nothing about who asked. So a
request for an unknown host name (DNS rebinding) and one that another site started are refused before the session is
looked at. Other ports of the same host are other sites here, though browsers send them the same cookies.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(slots=True, frozen=True)
class Refusal:
    """Why a request is not answered; `code` is stable and translated for people."""

    status: int
    code: str
    message: str
    hint: str


UNKNOWN_HOST = Refusal(
    421,
    "unknown_host",
    "The hub does not know the host name this request asks for.",
    "Use its IP address or localhost, or add the name to PALLAS_HUB_HOSTS.",
)
CROSS_SITE = Refusal(
    403,
    "cross_site",
    "Another site started this request.",
    "Open the hub's own address; behind a reverse proxy, pass the Host header through.",
)


def known_host(host: str, names: Collection[str]) -> bool:
    """Whether a `Host` header names us: an IP address, localhost, or one of `names` (lower case, port optional)."""
    host = host.strip().lower()
    name = _hostname(host)
    if name is None:
        return False
    # An address cannot be rebound: only a name lets a stranger's page reach us under the stranger's origin.
    return _is_address(name) or name == "localhost" or name.endswith(".localhost") or name in names or host in names


def foreign(headers: Mapping[str, str], names: Collection[str]) -> bool:
    """Whether the headers say that a page of another origin started this request."""
    if headers.get("sec-fetch-site", "none").strip().lower() not in {"none", "same-origin"}:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        netloc = urlsplit(origin.strip().lower()).netloc
    except ValueError:
        return True
    # Compared without the scheme: a proxy may end TLS before us.
    return not netloc or (netloc != headers.get("host", "").strip().lower() and netloc not in names)


def navigation(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a person followed a link to here: a top-level GET that changes nothing."""
    return (
        method == "GET"
        and headers.get("sec-fetch-mode", "") == "navigate"
        and headers.get("sec-fetch-dest", "") == "document"
    )


def forwarded(headers: Mapping[str, str]) -> bool:
    """Whether a proxy passed this request on, so that its peer address is not the visitor's."""
    return any(name in headers for name in ("forwarded", "x-forwarded-for", "x-real-ip", "via"))


def _hostname(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018  (raises for a port that is none)
    except ValueError:
        return None
    return None if parts.username is not None or parts.path else parts.hostname


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

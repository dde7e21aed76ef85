"""The implementations of OneBot v11 that connect to a worker: how each is recognised, and what is known of it.

A guess only tunes (which answer means "no such action", how often a heartbeat is due). It never refuses a link, and
apart from Lagrange, whose sequence hides in its message ids, no frame is read differently because of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pallas.model import JsonObject


class End(StrEnum):
    """Which implementation is at the other side of a link."""

    NAPCAT = "napcat"
    LLONEBOT = "llonebot"
    LAGRANGE = "lagrange"
    GOCQ = "gocq"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EndFacts:
    """What an implementation does unless its operator configured otherwise."""

    heartbeat_ms: int
    """Default period of its heartbeats."""
    honest_online: bool
    """Whether `online` in its heartbeats is measured; a constant otherwise."""
    no_such_action: frozenset[int]
    """Retcodes that mean it does not know the action."""
    sequenced_since: tuple[int, ...] | None
    """First version that surely reports the group's sequence; () for all of them, None where nobody knows."""


_FACTS: Final[dict[End, EndFacts]] = {
    # The sequence appeared in March 2025 (NapCat) and December 2024 (LLOneBot). The versions named here are later
    # than that on purpose: to call an end sequenced that is not makes messages be answered twice.
    End.NAPCAT: EndFacts(30_000, honest_online=True, no_such_action=frozenset({1404}), sequenced_since=(4, 8)),
    End.LLONEBOT: EndFacts(30_000, honest_online=True, no_such_action=frozenset({1404}), sequenced_since=(6,)),
    End.LAGRANGE: EndFacts(5_000, honest_online=False, no_such_action=frozenset({404}), sequenced_since=()),
    End.GOCQ: EndFacts(5_000, honest_online=True, no_such_action=frozenset({404}), sequenced_since=()),
    End.UNKNOWN: EndFacts(30_000, honest_online=False, no_such_action=frozenset({404, 1404}), sequenced_since=None),
}

# Lower-case beginnings of `app_name` and of the product in a User-Agent.
_NAMES: Final[tuple[tuple[str, End], ...]] = (
    ("napcat", End.NAPCAT),
    ("llonebot", End.LLONEBOT),
    ("llbot", End.LLONEBOT),
    ("luckylillia", End.LLONEBOT),
    ("lagrange", End.LAGRANGE),
    ("go-cqhttp", End.GOCQ),
    ("cqhttp", End.GOCQ),
    # NapCat's User-Agent is this generic one, so it is a guess until `get_version_info` has answered.
    ("onebot/11", End.NAPCAT),
)
# These User-Agents carry a fixed number that is no version of the end.
_UNVERSIONED: Final = ("cqhttp", "onebot")
_VERSION: Final = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,3}")
_VERSION_CHARS: Final = 64


def facts(end: End) -> EndFacts:
    """What is known of an implementation."""
    return _FACTS[end]


def identify(user_agent: str, version_info: JsonObject | None = None) -> tuple[End, str]:
    """The implementation and its version ("" if not told), by the User-Agent and the data of `get_version_info`.

    What the end says when asked beats the header; a name that is not known leaves the header's guess.
    """
    end = _named(user_agent)
    product, _, version = user_agent.partition("/")
    if end is End.UNKNOWN or product.strip().lower().startswith(_UNVERSIONED):
        version = ""
    if version_info is not None:
        name, told = version_info.get("app_name"), version_info.get("app_version")
        known = _named(name) if isinstance(name, str) else End.UNKNOWN
        if known is not End.UNKNOWN:
            end = known
        if isinstance(told, str):
            version = told
    return end, version.strip()[:_VERSION_CHARS]


def sequenced(end: End, version: str) -> bool | None:
    """Whether this end surely reports the group's sequence; None where only its messages can tell."""
    since = _FACTS[end].sequenced_since
    if since is None:
        return None
    if not since:
        return True
    match = _VERSION.search(version[:_VERSION_CHARS])
    if match is None:
        return None
    return True if tuple(map(int, match.group().split("."))) >= since else None


def _named(name: str) -> End:
    name = name.strip().lower()
    for beginning, end in _NAMES:
        if name.startswith(beginning):
            return end
    return End.UNKNOWN

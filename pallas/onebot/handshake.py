"""Whether a WebSocket upgrade of a protocol end is let in, and as which account: headers in, a verdict out.

Ends give up after two seconds and retry for ever, so nothing is looked up here. They read neither status nor body:
the hint is for the operator who sees the log, and never holds a token.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import unquote, unquote_plus

from pallas.onebot.ends import End, identify
from pallas.onebot.link import Role

DEFAULT_PATH: Final = "/onebot/v11/ws"

_ACCOUNT_DIGITS: Final = 20
_USER_AGENT_CHARS: Final = 120
_SCHEMES: Final = frozenset({"bearer", "token"})
# A proxy on this machine makes every stranger look local; it gives itself away by one of these.
_PROXY_HEADERS: Final = ("x-forwarded-for", "forwarded", "x-real-ip")
_ROLES: Final[dict[str, Role]] = {role.value: role for role in Role}

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class Refusal(StrEnum):
    """Why an upgrade was refused. Stable codes."""

    WRONG_PATH = "wrong_path"
    NO_TOKEN = "no_token"  # noqa: S105 - a reason code
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a reason code
    NOT_LOOPBACK = "not_loopback"
    FROM_BROWSER = "from_browser"
    BAD_ROLE = "bad_role"
    BAD_ACCOUNT = "bad_account"


@dataclass(frozen=True, slots=True)
class Handshake:
    """An upgrade that may be accepted."""

    account: str | None
    """None where the end did not say: its first event tells."""
    role: Role
    user_agent: str
    end: End
    version: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An upgrade that must be answered with an HTTP error."""

    status: int
    reason: Refusal
    hint: str
    """What the operator should change."""


def read(
    headers: Headers,
    target: str,
    *,
    token: str | None,
    peer_is_loopback: bool,
    path: str = DEFAULT_PATH,
) -> Handshake | Refused:
    """Judge an upgrade request.

    `headers` as pairs wherever one name may stand twice. `target` is the path with its query; an empty `token` means
    that none is configured.
    """
    given = _by_name(headers)
    asked, _, query = target.partition("?")
    if asked.rstrip("/") != path.rstrip("/"):
        return Refused(404, Refusal.WRONG_PATH, f"set the end's reverse WebSocket address to end in {path}")
    refused = _check_token(given, query, (token or "").strip(), peer_is_loopback=peer_is_loopback)
    if refused is not None:
        return refused

    roles = {value.strip().lower() for value in given.get("x-client-role", ())} - {""}
    if len(roles) > 1 or not roles <= _ROLES.keys():
        return Refused(400, Refusal.BAD_ROLE, "X-Client-Role must be Universal, API or Event, once")
    accounts = {value.strip() for value in given.get("x-self-id", ())} - {""}
    account = next(iter(accounts), None)
    if account is not None:
        plain = account.isascii() and account.isdigit() and len(account) <= _ACCOUNT_DIGITS
        account = account.lstrip("0") if plain else ""
        if len(accounts) > 1 or not account:
            return Refused(400, Refusal.BAD_ACCOUNT, "X-Self-ID must be one account number")
    user_agent = _printable(" ".join(given.get("user-agent", ())))
    end, version = identify(user_agent)
    return Handshake(account, _ROLES[roles.pop()] if roles else Role.UNIVERSAL, user_agent, end, version)


def _check_token(given: Mapping[str, list[str]], query: str, token: str, *, peer_is_loopback: bool) -> Refused | None:
    if not token:
        if not peer_is_loopback or any(name in given for name in _PROXY_HEADERS):
            return Refused(
                403,
                Refusal.NOT_LOOPBACK,
                "no token is configured, so only ends on this machine are taken: "
                "set PALLAS_ONEBOT_TOKEN here and the same token in the end",
            )
        if "origin" in given:
            # Any web page that this machine's user opens could otherwise speak for an account.
            return Refused(
                403,
                Refusal.FROM_BROWSER,
                "no token is configured and the request comes from a web page: set PALLAS_ONEBOT_TOKEN",
            )
        return None
    presented = _presented(given, query)
    if not presented:
        return Refused(
            401, Refusal.NO_TOKEN, "the end sends none; enter the value of PALLAS_ONEBOT_TOKEN in the end's settings"
        )
    expected = token.encode()
    # Every candidate is compared, so that the time tells nothing.
    if not sum([hmac.compare_digest(one, expected) for one in presented]):
        return Refused(
            403,
            Refusal.WRONG_TOKEN,
            "what the end sends is not PALLAS_ONEBOT_TOKEN; enter that value in the end's settings",
        )
    return None


def _presented(given: Mapping[str, list[str]], query: str) -> list[bytes]:
    """Every token the request may mean: header before query, and each way its bytes may have been decoded."""
    for value in given.get("authorization", ()):
        scheme, _, rest = value.strip().partition(" ")
        rest = rest.strip()
        if rest and scheme.lower() in _SCHEMES:
            return _readings(rest)
    found: list[bytes] = []
    for parameter in query.split("&"):
        name, _, value = parameter.partition("=")
        if name == "access_token" and value.strip():
            # A plus sign is a blank only to some of those who write queries.
            found += _readings(unquote(value, errors="surrogateescape").strip())
            found += _readings(unquote_plus(value, errors="surrogateescape").strip())
    return found


def _readings(value: str) -> list[bytes]:
    """Header bytes beyond ASCII reach us as Latin-1 or escaped, depending on the server that read them."""
    readings: list[bytes] = []
    for encoding, errors in (("utf-8", "surrogateescape"), ("latin-1", "strict")):
        with contextlib.suppress(UnicodeEncodeError):
            readings.append(value.encode(encoding, errors))
    return readings


def _by_name(headers: Headers) -> dict[str, list[str]]:
    given: dict[str, list[str]] = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        given.setdefault(name.lower(), []).append(value)
    return given


def _printable(value: str) -> str:
    return "".join([char if char.isprintable() else "?" for char in value[:_USER_AGENT_CHARS]])

"""Decides who a visitor is: the hub token, a session that a one-time link or the token was exchanged for, or a command.

Everything is proven by signatures under one secret of the data folder, so that sessions outlive restarts and work
while Redis is away. A link's code is signed with its time: another process with the same folder can issue one
(`pallas hub --new-link`), and a hub takes only codes issued since it started, because it remembers used ones no
longer than it runs. A command of this machine (`pallas bots`) proves in the same way that it may read the folder.
Codes and tokens are never logged, and are compared in constant time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from webui.limiter import SignInLimiter

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from pallas.clock import Clock

_NONCE_BYTES = 12
_TIME_BYTES = 6
_MAC_BYTES = 24
_SHORTEST_SECRET = 16
_COMMAND_LIFE_MS = 60_000


class How(StrEnum):
    """What proved an identity."""

    TOKEN = "token"  # noqa: S105
    SESSION = "session"
    LOOPBACK = "loopback"
    COMMAND = "command"


@dataclass(slots=True, frozen=True)
class Identity:
    """A visitor who may look; `session_id` is empty where no session stands behind the request."""

    how: How
    session_id: str = ""


class Auth:
    """Checks visitors and exchanges codes and the token for sessions."""

    def __init__(
        self, secret: bytes, token: str, clock: Clock, *, link_s: float = 900.0, session_s: float = 604_800.0
    ) -> None:
        """`secret` comes from the data folder; `token` is empty where none is set.

        Sessions end after `session_s`, and at once when the secret or the token is changed.
        """
        if len(secret) < _SHORTEST_SECRET:
            msg = f"the hub's session secret has {len(secret)} bytes; at least {_SHORTEST_SECRET} are needed"
            raise ValueError(msg)
        self._clock = clock
        self._token = _digest(token) if token else None
        self._link_key = _derived(secret, b"sign-in link")
        self._command_key = _derived(secret, b"command")
        self._session_key = _derived(secret, b"session\0" + token.encode("utf-8", "surrogatepass"))
        self._link_s = link_s
        self._session_s = session_s
        self._started_ms = _ms(clock)
        self._used: dict[bytes, float] = {}
        self.limiter = SignInLimiter(clock)
        # Browsers send a host's cookies to all its ports: two hubs on one machine must not overwrite each other's.
        self.cookie_name = f"pallas_session_{_derived(secret, b'cookie name').hex()[:8]}"

    def __repr__(self) -> str:
        """Never shows a secret."""
        return f"Auth(token={'set' if self.has_token else 'none'}, cookie_name={self.cookie_name!r})"

    @property
    def has_token(self) -> bool:
        """Whether `PALLAS_HUB_TOKEN` is set."""
        return self._token is not None

    def issue_link(self) -> str:
        """A code for `/signin?code=…`: valid once, for `link_s`, at a hub that runs now."""
        return self._signed(self._link_key, _ms(self._clock))

    def issue_bearer(self) -> str:
        """What a command with the data folder sends as `Authorization: Bearer`; good for a minute, at any hub of it."""
        return self._signed(self._command_key, _ms(self._clock) + _COMMAND_LIFE_MS)

    def redeem(self, code: str) -> str | None:
        """The cookie value of a new session in exchange for `code`; `None` where it is wrong, used or too old."""
        opened = self._opened(self._link_key, code)
        if opened is None:
            return None
        nonce, issued_ms = opened
        now_ms = _ms(self._clock)
        life_ms = int(self._link_s * 1000)
        if not self._started_ms <= issued_ms <= now_ms < issued_ms + life_ms or nonce in self._used:
            return None
        self._used = {used: until for used, until in self._used.items() if until > now_ms}
        self._used[nonce] = issued_ms + life_ms
        return self._session()

    def exchange_token(self, token: str) -> str | None:
        """The cookie value of a new session in exchange for the hub token; `None` where it is not that."""
        return self._session() if self._is_token(token) else None

    def check(self, request: HTTPConnection) -> Identity | None:
        """Who sends `request`; a wrong bearer token counts against its peer, an old cookie does not."""
        authorization = request.headers.get("authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            peer = peer_of(request)
            if self.limiter.wait_s(peer) > 0:
                return None
            how = self._bearer(token.strip()) if scheme.lower() == "bearer" else None
            if how is not None:
                self.limiter.succeeded(peer)
                return Identity(how)
            self.limiter.failed(peer)
            return None
        opened = self._opened(self._session_key, request.cookies.get(self.cookie_name, ""))
        if opened is None or opened[1] <= _ms(self._clock):
            return None
        return Identity(How.SESSION, opened[0].hex())

    def remember(self, response: Response, cookie: str, *, https: bool) -> None:
        """Sends the session `cookie` with `response`."""
        response.set_cookie(
            self.cookie_name,
            cookie,
            max_age=int(self._session_s),
            path="/",
            secure=https,
            httponly=True,
            samesite="strict",
        )

    def _session(self) -> str:
        return self._signed(self._session_key, _ms(self._clock) + int(self._session_s * 1000))

    def _is_token(self, token: str) -> bool:
        return self._token is not None and hmac.compare_digest(self._token, _digest(token))

    def _bearer(self, token: str) -> How | None:
        if self._is_token(token):
            return How.TOKEN
        opened = self._opened(self._command_key, token)
        now_ms = _ms(self._clock)
        # One that ends later was not made by `issue_bearer`, or by a clock that is off: it would be good for too long.
        good = opened is not None and now_ms < opened[1] <= now_ms + _COMMAND_LIFE_MS
        return How.COMMAND if good else None

    def _signed(self, key: bytes, time_ms: int) -> str:
        body = secrets.token_bytes(_NONCE_BYTES) + time_ms.to_bytes(_TIME_BYTES, "big")
        return base64.urlsafe_b64encode(body + _mac(key, body)).decode()

    def _opened(self, key: bytes, text: str) -> tuple[bytes, int] | None:
        """The nonce and time of a text that `_signed` made under `key`."""
        try:
            raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            return None
        body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        if len(body) != _NONCE_BYTES + _TIME_BYTES or not hmac.compare_digest(mac, _mac(key, body)):
            return None
        return body[:_NONCE_BYTES], int.from_bytes(body[_NONCE_BYTES:], "big")


def peer_of(request: HTTPConnection) -> str:
    """The address at the other end; empty for a Unix socket."""
    return request.client.host if request.client is not None else ""


def _ms(clock: Clock) -> int:
    return int(clock.wall_s() * 1000)


def _digest(token: str) -> bytes:
    # Hashed before it is compared, so that not even the length shows in the time.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, b"pallas hub: " + purpose, "sha256")


def _mac(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_MAC_BYTES]

"""Stands before every route: who may ask, from where, and what every answer says about itself.

It refuses by default, so that a route which is added later is guarded before anybody thinks of it; the few open
paths are listed here. It writes the access log, without query strings, and turns an error nobody expected into an
answer without its text.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection

from pallas.addresses import is_loopback
from pallas.untrusted import visible
from webui import origin
from webui.answers import error
from webui.auth import Auth, How, Identity, peer_of
from webui.pages import Pages, nonce_of, wants_html

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pallas.clock import Clock

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
SIGN_IN_PATH = "/signin"
STATIC_PREFIX = "/static/"
METRICS_PATH = "/metrics"

_SERVER_ERROR = 500
_NOT_NOW = 503
_CLIENT_ERROR = 400
_LONGEST_LOGGED_PATH = 200


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, auth: Auth, pages: Pages, clock: Clock, hosts: Collection[str]) -> None:
        """`hosts` are the names by which the hub may be addressed besides IP addresses and localhost."""
        self._app = app
        self._auth = auth
        self._pages = pages
        self._clock = clock
        self._hosts = frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, refuses or passes on one request."""
        if scope["type"] == "websocket":
            # The hub offers none; closing before the accept is a 403.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        began = self._clock.mono()
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _describe(MutableHeaders(scope=message), request)
            await send(message)

        try:
            refused = self._refused(request)
            await (refused or self._app)(scope, receive, send_guarded)
        except Exception:
            structlog.get_logger().exception("http.failed", method=scope["method"], path=_logged_path(scope))
            if status:
                raise
            await self._failed(request)(scope, receive, send_guarded)
        _log_access(scope, status, peer_of(request), self._clock.mono() - began)

    def _refused(self, request: HTTPConnection) -> Response | None:
        """The refusal of a request that may not pass; notes the identity of one that may."""
        path, method = request.scope["path"], request.scope["method"]
        if path in HEALTH_PATHS or path.startswith(STATIC_PREFIX):
            return None
        signing_in = path == SIGN_IN_PATH
        if refusal := self._misdirected(request, links_welcome=signing_in and method == "GET"):
            return self._say(request, refusal)
        if signing_in:
            return None
        identity = self._auth.check(request) or self._local_scraper(request)
        if identity is None:
            return self._unknown_visitor(request)
        request.scope.setdefault("state", {})["identity"] = identity
        return None

    def _misdirected(self, request: HTTPConnection, *, links_welcome: bool) -> origin.Refusal | None:
        headers = request.headers
        # Whoever sends a token means it: no page can make a browser add one to a name it has taken over.
        if "authorization" not in headers and not origin.known_host(headers.get("host", ""), self._hosts):
            return origin.UNKNOWN_HOST
        if origin.foreign(headers, self._hosts) and not (
            links_welcome and origin.navigation(request.scope["method"], headers)
        ):
            return origin.CROSS_SITE
        return None

    def _local_scraper(self, request: HTTPConnection) -> Identity | None:
        """A metrics collector on this machine needs no token; one that a proxy speaks for does."""
        local = is_loopback(peer_of(request)) and not origin.forwarded(request.headers)
        wanted = request.scope["path"] == METRICS_PATH and "authorization" not in request.headers
        return Identity(How.LOOPBACK) if local and wanted else None

    def _say(self, request: HTTPConnection, refusal: origin.Refusal) -> Response:
        if wants_html(request):
            return self._pages.refusal(request, refusal.status, refusal.code)
        return error(refusal.status, refusal.code, refusal.message, refusal.hint)

    def _unknown_visitor(self, request: HTTPConnection) -> Response:
        wait_s = math.ceil(self._auth.limiter.wait_s(peer_of(request)))
        if wait_s and "authorization" in request.headers:
            return error(
                429,
                "too_many_attempts",
                "Too many wrong tokens from this address.",
                f"Try again in {wait_s} s with the value of PALLAS_HUB_TOKEN.",
                headers={"Retry-After": str(wait_s)},
            )
        if wants_html(request):
            return self._pages.draw(
                request, "signin.html", status=401, code="", problem="", wait_s=0, has_token=self._auth.has_token
            )
        return error(
            401,
            "not_signed_in",
            "This needs a session or the hub token.",
            "Send `Authorization: Bearer <PALLAS_HUB_TOKEN>`, or sign in with the link of `pallas hub --new-link`.",
            headers={"WWW-Authenticate": 'Bearer realm="pallas"'},
        )

    def _failed(self, request: HTTPConnection) -> Response:
        if wants_html(request):
            return self._pages.refusal(request, _SERVER_ERROR, "internal")
        return error(_SERVER_ERROR, "internal", "The hub failed to answer.", "Its log has the cause: `http.failed`.")


def _describe(headers: MutableHeaders, request: HTTPConnection) -> None:
    """Adds what every answer says: what may run in it, who may frame it, that it is not to be kept."""
    headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'nonce-{nonce_of(request)}'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    headers["X-Content-Type-Options"] = "nosniff"
    headers["X-Frame-Options"] = "DENY"
    # Not `no-referrer`: browsers would then post the sign-in form with `Origin: null`.
    headers["Referrer-Policy"] = "same-origin"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers["Cache-Control"] = "no-cache" if request.scope["path"].startswith(STATIC_PREFIX) else "no-store"


def _log_access(scope: Scope, status: int, peer: str, took_s: float) -> None:
    log = structlog.get_logger()
    if status == _NOT_NOW:
        # Open pages and probes go on asking while Redis is away; whoever cannot see says so once (`view.blind`).
        note = log.debug
    elif status >= _SERVER_ERROR:
        note = log.warning
    elif scope["method"] not in {"GET", "HEAD"} or status >= _CLIENT_ERROR:
        note = log.info
    else:
        # Open pages ask every two seconds.
        note = log.debug
    took_ms = round(took_s * 1000, 1)
    note("http.answered", method=scope["method"], path=_logged_path(scope), status=status, peer=peer, took_ms=took_ms)


def _logged_path(scope: Scope) -> str:
    return visible(scope["path"], _LONGEST_LOGGED_PATH)

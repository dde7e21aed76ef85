"""The WebSocket server that protocol ends connect to, and the worker's plain HTTP pages beside it.

An upgrade is judged by its headers alone: ends give up after two seconds, and nothing slow may stand before the accept.
Frames are handed on as bytes in the turn they are read in. A frame that breaks the protocol closes its link with a
code; a flood of them costs a bounded number of log lines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from typing import Any, Protocol

import structlog
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State

from pallas.addresses import is_loopback
from pallas.clock import Clock
from pallas.failure import describe
from pallas.log_limit import LimitedLog, LogLimit
from pallas.onebot.handshake import Handshake, Refused, read
from pallas.onebot.link import Link

_log = structlog.get_logger()
_REFUSALS_PER_MIN = 6
_CLOSE_TIMEOUT_S = 2.0
_MAX_UNREAD_BYTES = 64 * 1024 * 1024
BAD_DATA = 1007
TOO_BIG = 1009
SERVICE_RESTART = 1012


@dataclass(slots=True, frozen=True)
class Page:
    """One plain HTTP answer."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[], Awaitable[Page]]]


class Guests(Protocol):
    """Who is told about links. All are called on the loop of the sockets and must not block it."""

    def opened(self, link: Link) -> None:
        """A link is open."""

    def frame(self, link: Link, data: bytes) -> Awaitable[None] | None:
        """A frame came; an awaitable holds back the reading of further ones. Raises BadLink to close it."""

    def too_large(self, link: Link) -> None:
        """A frame was larger than is taken; the link closes."""

    def closed(self, link: Link, code: int, reason: str) -> None:
        """The link is gone."""


class BadLink(Exception):
    """Raised by a guest: the link must be closed with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(slots=True, frozen=True)
class ListenerSettings:
    """Where and how to listen; sizes in bytes, times in seconds."""

    host: str
    port: int
    path: str
    token: str
    max_frame_bytes: int
    max_links: int
    ping_interval_s: float
    open_timeout_s: float = 10.0
    """An upgrade that is not asked for in full by then is cut off."""


class _End(ServerConnection):
    """A connection that remembers what its headers said."""

    welcome: Handshake | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Every ping is answered; an end that sends them and reads nothing would fill our memory with pongs.
        if self.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self.transport.abort()


class _Socket:
    """A link's way to write to its connection."""

    __slots__ = ("_connection",)

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def write(self, frame: bytes) -> None:
        if self._connection.state is not State.OPEN:
            raise ConnectionError("the link is closed")
        try:
            await self._connection.send(frame, text=True)
        except ConnectionClosed as error:
            # It was open, so the frame went into its buffer first.
            raise BrokenPipeError(f"the link closed ({error})") from error

    async def close(self, code: int, reason: str) -> None:
        await self._connection.close(code, reason)


class Listener:
    """Accepts protocol ends for one worker."""

    def __init__(
        self,
        settings: ListenerSettings,
        guests: Guests,
        clock: Clock,
        *,
        pages: Pages,
        handshakes: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._guests = guests
        self._clock = clock
        self._pages = pages
        self._handshakes = handshakes
        self.complaints = LimitedLog(LogLimit(per_min=_REFUSALS_PER_MIN, mono=clock.mono))
        self._numbers = count(1)
        self._links: set[Link] = set()
        self._server: Server | None = None
        self.accepting = True

    async def start(self) -> None:
        """Listen. Raises OSError where the port is taken."""
        settings = self._settings
        self._server = await serve(
            self._attend,
            settings.host,
            settings.port,
            process_request=self._judge,
            compression=None,
            max_size=settings.max_frame_bytes,
            ping_interval=settings.ping_interval_s,
            ping_timeout=settings.ping_interval_s,
            open_timeout=settings.open_timeout_s,
            close_timeout=_CLOSE_TIMEOUT_S,
            server_header=None,
            create_connection=_End,
            # Every failed handshake and bad frame would be a traceback; what matters is logged here, within bounds.
            logger=_silent(),
        )

    async def stop(self, code: int = SERVICE_RESTART, reason: str = "worker is stopping") -> None:
        """Close all links and the port."""
        self.accepting = False
        if self._server is None:
            return
        await asyncio.gather(*(link.close(code, reason) for link in list(self._links)), return_exceptions=True)
        self._server.close()
        await self._server.wait_closed()

    async def _judge(self, connection: ServerConnection, request: Request) -> Response | None:
        path = request.path.partition("?")[0]
        page = self._pages.get(path)
        if page is not None:
            answer = await page()
            return _response(answer.status, answer.body, answer.content_type)
        peer = connection.remote_address
        verdict = read(
            request.headers.raw_items(),
            request.path,
            token=self._settings.token,
            peer_is_loopback=isinstance(peer, tuple) and is_loopback(str(peer[0])),
            path=self._settings.path,
        )
        if isinstance(verdict, Refused):
            return self._refuse(peer, verdict.status, verdict.reason.value, verdict.hint)
        if len(self._links) >= self._settings.max_links:
            return self._refuse(peer, 503, "too_many_links", "raise PALLAS_MAX_LINKS or add a worker")
        if not self.accepting:
            return self._refuse(peer, 503, "stopping", "the worker is stopping; the end will come back by itself")
        if isinstance(connection, _End):
            connection.welcome = verdict
        return None

    def _refuse(self, peer: Any, status: int, reason: str, hint: str) -> Response:
        self._handshakes(reason)
        # Ends retry a wrong token for ever: the log is limited, not the end.
        host = peer[0] if isinstance(peer, tuple) else str(peer)
        self.complaints.warning("link.refused", f"{host} {reason}", status=status, hint=hint)
        return _response(status, f"{reason}: {hint}\n".encode(), "text/plain; charset=utf-8")

    async def _attend(self, connection: ServerConnection) -> None:
        handshake = connection.welcome if isinstance(connection, _End) else None
        if handshake is None:
            return
        self._handshakes("accepted")
        peer = connection.remote_address
        link = Link(
            _Socket(connection),
            next(self._numbers),
            bot_id=handshake.account or "",
            role=handshake.role,
            end=handshake.end,
            version=handshake.version,
            user_agent=handshake.user_agent,
            peer=f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer),
            opened_at=self._clock.wall_s(),
        )
        self._links.add(link)
        guests = self._guests
        receive, frame = connection.recv, guests.frame
        try:
            guests.opened(link)
            while True:
                # Bytes, also of text frames: the JSON parser checks the encoding in the same pass.
                data = await receive(decode=False)
                try:
                    held_back = frame(link, data)
                except BadLink:
                    raise
                except Exception as error:
                    # A fault of ours must not cost the account its link, and must be seen.
                    self.complaints.warning("frame.failed", type(error).__name__, link=link.number, **describe(error))
                    continue
                if held_back is not None:
                    await held_back
        except ConnectionClosed as closed:
            if closed.sent is not None and closed.sent.code == TOO_BIG and not closed.rcvd_then_sent:
                guests.too_large(link)
        except BadLink as bad:
            # Nothing more is read, so no call can be answered from here on.
            link.lost()
            await connection.close(bad.code, bad.reason[:120])
        finally:
            self._links.discard(link)
            link.lost()
            guests.closed(link, connection.close_code or 1006, connection.close_reason or "")


def _response(status: int, body: bytes, content_type: str) -> Response:
    headers = Headers()
    headers["Content-Type"] = content_type
    headers["Content-Length"] = str(len(body))
    headers["Connection"] = "close"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(status, HTTPStatus(status).phrase, headers, body)


def _silent() -> logging.Logger:
    logger = logging.getLogger("pallas.websockets")
    logger.setLevel(logging.CRITICAL + 1)
    return logger

"""Answers a WebSocket that is dialled to the hub, which offers none: mostly a protocol end with the wrong port.

It is refused before the application sees it, with words for whoever reads the end's log, and said here at most once
a minute.
"""

from __future__ import annotations

import asyncio
from typing import cast

import structlog

from pallas.log_limit import LogLimit

_HEAD = (
    "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
    "Cache-Control: no-store\r\nConnection: close\r\nContent-Length: "
)


class Dialled(asyncio.Protocol):
    """What uvicorn hands a WebSocket upgrade to, one for each; `limit` is shared by all of them."""

    def __init__(self, limit: LogLimit, worker_port: int, **_: object) -> None:
        self._limit = limit
        self._hint = f"protocol ends connect to the workers (port {worker_port} + K), not to the hub"
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the connection for the answer."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, _: bytes) -> None:
        """Answers the upgrade and closes; whatever else arrives is not read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        suppressed = self._limit.passes("dialled")
        if suppressed is not None:
            peer = transport.get_extra_info("peername")
            more = {"suppressed": suppressed} if suppressed else {}
            structlog.get_logger().warning(
                "hub.websocket_dialled", peer=peer[0] if isinstance(peer, tuple) else "", hint=self._hint, **more
            )
        body = f"The hub has no WebSocket: {self._hint}.\n"
        transport.write(f"{_HEAD}{len(body)}\r\n\r\n{body}".encode("ascii"))
        transport.close()

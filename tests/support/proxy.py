"""A TCP proxy before the test server that cuts, stalls and delays, to see what a client makes of it."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

_CHUNK = 65536


class Proxy:
    """Forwards to a port of the loopback address; its knobs may be turned at any time."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0
        self.requests: list[bytes] = []
        """What clients wrote, one item per read."""
        self.connected = 0
        """Connections made so far."""
        self.latency_s = 0.0
        self.cut_before_reply = 0
        """So many of the next replies are swallowed and their connections closed: the commands have run."""
        self.cut_before_request = 0
        """So many of the next requests are swallowed and their connections closed: nothing has run."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.refuse()

    async def open(self) -> None:
        """Listen, at the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Close every connection and take no further ones."""
        if self._server is not None:
            self._server.close()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def stall(self) -> None:
        """Hold all replies back; requests still reach the server."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let replies pass again, the held ones first."""
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._forward(reader, writer)
        except asyncio.CancelledError:
            # By `refuse`: a handler that ends as cancelled makes the server's own callback fail.
            pass

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self._upstream)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, there))
                group.create_task(self._replies(back, writer))
        except* (OSError, _Cut):
            pass
        finally:
            self._links.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.close()
                    with contextlib.suppress(OSError):
                        await end.wait_closed()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK):
            if self.cut_before_request:
                self.cut_before_request -= 1
                raise _Cut
            self.requests.append(chunk)
            writer.write(chunk)
            await writer.drain()
        raise _Cut

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK):
            if self.cut_before_reply:
                self.cut_before_reply -= 1
                raise _Cut
            if self.latency_s:
                await lag(self.latency_s)
            await self._flowing.wait()
            writer.write(chunk)
            await writer.drain()
        raise _Cut


async def lag(seconds: float) -> None:
    """Let so much time pass, where a slow line or server is what a test is about."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


class _Cut(Exception):
    """The connection ends here."""

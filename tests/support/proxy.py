"""A TCP proxy before a server that cuts, stalls, delays, narrows and loses, to see what a client makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

_CHUNK = 65536
_UnderWay = asyncio.Queue[tuple[float, bytes]]
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards to a port of the loopback address; its knobs may be turned at any time."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._random = random.Random(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0
        self.requests: list[bytes] = []
        """What clients wrote, one item per read."""
        self.connected = 0
        """Connections made so far."""
        self.latency_s = 0.0
        self.jitter_s = 0.0
        """Up to so much is added to the latency, or taken from it, at each reply."""
        self.stall_share = 0.0
        """Share of the replies that take `stall_s` longer, as where a packet was lost."""
        self.stall_s = 0.3
        self.bytes_per_s = 0
        """How many bytes pass each way in a second; 0 for no limit."""
        self.lose_requests = False
        """What clients write is swallowed, and no connection is closed: a cable that is cut one way."""
        self.lose_replies = False
        """The other way."""
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
        self._loop = asyncio.get_running_loop()
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

    @property
    def ws_url(self) -> str:
        """Where a protocol end connects, if a worker stands behind."""
        return f"ws://127.0.0.1:{self.port}/onebot/v11/ws"

    def set_down(self, down: bool) -> None:
        """Refuse everybody, or listen again, asked from another thread."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self.refuse() if down else self.open(), self._loop).result(10)

    def reset(self) -> None:
        """Break every connection with a reset, as a machine that has restarted does."""
        for writer in list(self._writers):
            carrier = writer.get_extra_info("socket")
            if carrier is not None:
                carrier.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

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
        self._writers.add(writer)
        there: asyncio.StreamWriter | None = None
        under_way: _UnderWay = asyncio.Queue()
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self._upstream)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, there))
                group.create_task(self._replies(back, under_way))
                group.create_task(self._deliver(under_way, writer))
        except* (OSError, _Cut):
            pass
        finally:
            self._links.discard(task)
            self._writers.discard(writer)
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
            if self.lose_requests:
                continue
            await self._narrow(chunk)
            writer.write(chunk)
            await writer.drain()
        raise _Cut

    async def _replies(self, reader: asyncio.StreamReader, under_way: _UnderWay) -> None:
        now, due = asyncio.get_running_loop().time, 0.0
        while chunk := await reader.read(_CHUNK):
            if self.cut_before_reply:
                self.cut_before_reply -= 1
                raise _Cut
            # Late, not slow: the next reply is under way before this one arrives, and never overtakes it.
            due = max(due, now() + self._late_s())
            under_way.put_nowait((due, chunk))
        under_way.put_nowait((due, b""))

    async def _deliver(self, under_way: _UnderWay, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, chunk = await under_way.get()
            if due > now():
                await lag(due - now())
            await self._flowing.wait()
            if not chunk:
                raise _Cut
            if not self.lose_replies:
                await self._narrow(chunk)
                writer.write(chunk)
                await writer.drain()

    def _late_s(self) -> float:
        late_s = self.latency_s + self.jitter_s * self._random.uniform(-1, 1)
        if self.stall_share and self._random.random() < self.stall_share:
            late_s += self.stall_s
        return late_s

    async def _narrow(self, chunk: bytes) -> None:
        if self.bytes_per_s:
            await lag(len(chunk) / self.bytes_per_s)


@contextlib.contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """A proxy for tests that run outside an event loop; its plain knobs may be turned from their thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxy", daemon=True)
    thread.start()

    def wait_for(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(10)

    async def opened() -> Proxy:
        proxy = Proxy(port)
        await proxy.open()
        return proxy

    proxy = asyncio.run_coroutine_threadsafe(opened(), loop).result(10)
    try:
        yield proxy
    finally:
        proxy.resume()
        wait_for(proxy.refuse())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def lag(seconds: float) -> None:
    """Let so much time pass, where a slow line or server is what a test is about."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


class _Cut(Exception):
    """The connection ends here."""

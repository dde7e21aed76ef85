"""The proxy that the fault tests break things with does what each of its knobs says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.proxy import Proxy
from tests.support.waiting import wait_until


class Echo:
    """A server that says back what it hears, and keeps it."""

    def __init__(self) -> None:
        self.heard = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                self.heard += chunk
                writer.write(chunk)
                await writer.drain()
        writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[tuple[Echo, Proxy]]:
    behind = Echo()
    server = await asyncio.start_server(behind.serve, "127.0.0.1", 0)
    async with server, Proxy(server.sockets[0].getsockname()[1]) as proxy:
        yield behind, proxy


async def test_a_line_cut_one_way_swallows_and_stays_open(echo: tuple[Echo, Proxy]) -> None:
    behind, proxy = echo
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    proxy.lose_replies = True
    writer.write(b"one")
    await wait_until(lambda: behind.heard == b"one")
    proxy.lose_replies, proxy.lose_requests = False, True
    writer.write(b"two")
    await wait_until(lambda: proxy.requests[-1] == b"two")
    proxy.lose_requests = False
    writer.write(b"three")
    assert await reader.read(100) == b"three"
    assert behind.heard == b"onethree"
    writer.close()


async def test_a_reset_is_seen_as_one(echo: tuple[Echo, Proxy]) -> None:
    _, proxy = echo
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"x")
    assert await reader.read(1) == b"x"
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()


async def test_a_narrow_line_takes_its_time(echo: tuple[Echo, Proxy]) -> None:
    _, proxy = echo
    proxy.bytes_per_s = 20_000
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    began = asyncio.get_running_loop().time()
    writer.write(b"x" * 2000)
    await reader.readexactly(2000)
    assert asyncio.get_running_loop().time() - began >= 0.2  # there and back
    writer.close()


async def test_latency_varies_and_some_replies_stall(echo: tuple[Echo, Proxy]) -> None:
    _, proxy = echo
    proxy.latency_s, proxy.jitter_s, proxy.stall_share, proxy.stall_s = 0.02, 0.02, 0.2, 0.15
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    took = []
    for _ in range(25):
        began = asyncio.get_running_loop().time()
        writer.write(b"x")
        await reader.readexactly(1)
        took.append(asyncio.get_running_loop().time() - began)
    assert max(took) >= 0.15
    assert min(took) < 0.1
    writer.close()

"""A TLS end before a server that has none: the wheel's Valkey is built without, so this stands where its own would.

The certificates are made anew for each run, by an authority that nothing else trusts.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import trustme

T = TypeVar("T")

_CHUNK = 65536


class Certificates:
    """An authority's certificate, one it gave to a server and one it gave to a client, as files of `folder`."""

    def __init__(self, folder: Path, *names: str) -> None:
        authority = trustme.CA()
        server = authority.issue_cert(*(names or ("127.0.0.1", "localhost")))
        client = authority.issue_cert("client@test")
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "client.pem", folder / "client.key"
        authority.cert_pem.write_to_path(self.ca)
        client.private_key_pem.write_to_path(self.key)
        client.cert_chain_pems[0].write_to_path(self.cert)
        self._authority, self._server = authority, server

    def context(self, *, wants_client: bool = False) -> ssl.SSLContext:
        """What a server of these certificates speaks; with `wants_client` only to clients that have one as well."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server.configure_cert(context)
        if wants_client:
            self._authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _End:
    """Forwards what it decrypts to a port of the loopback address, on a loop in a thread of its own."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._upstream = port
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._links: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="tls-end")

    def open(self) -> int:
        self._thread.start()
        return self._call(self._listen())

    def close(self) -> None:
        self._call(self._leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> int:
        # A client that refuses our certificate is what some tests want: no matter for the loop's handler of errors.
        self._loop.set_exception_handler(lambda *_: None)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _leave(self) -> None:
        assert self._server is not None
        self._server.close()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self._upstream)
            ways = [
                asyncio.ensure_future(_forward(reader, there)),
                asyncio.ensure_future(_forward(back, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._links.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()


@contextlib.contextmanager
def tls_end(port: int, context: ssl.SSLContext) -> Iterator[int]:
    """The port at which the server at `port` is reached by TLS."""
    end = _End(port, context)
    opened = end.open()
    try:
        yield opened
    finally:
        end.close()

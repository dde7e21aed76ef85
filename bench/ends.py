"""The load generator: accounts that connect as protocol ends do, then write prepared frames as fast as they are taken.

The handshake, pings and answers to actions are a real WebSocket client's; only the traffic bypasses it, as bytes that
were framed and masked beforehand, so that one process can send far more than any receiver reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from bench.frames import CONTROL, chunks, masked

_CHUNK = 64
_BUFFER = 1 << 20
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class End:
    """One account's connection; `said` receives the texts that the application sends through it."""

    def __init__(self, url: str, account: int, said: asyncio.Queue[str]) -> None:
        self._url = url
        self.account = account
        self._said = said
        self._connection: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        headers = {"X-Self-ID": str(self.account), "X-Client-Role": "Universal"}
        self._connection = await connect(
            self._url,
            additional_headers=headers,
            user_agent_header="OneBot/11",
            compression=None,
            ping_interval=None,
            max_size=None,
            proxy=None,
        )
        self._connection.transport.set_write_buffer_limits(_BUFFER)
        self._reading = asyncio.create_task(self._read(), name=f"end.{self.account}")
        lifecycle = {"post_type": "meta_event", "meta_event_type": "lifecycle", "sub_type": "connect"}
        self.write(masked(orjson.dumps({**lifecycle, "self_id": self.account, "time": int(time.time())})))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    @property
    def is_open(self) -> bool:
        """False once the receiver has closed the connection."""
        return self._reading is not None and not self._reading.done()

    def write(self, piece: bytes) -> None:
        """Hand whole frames to the socket."""
        assert self._connection is not None, "the end is not connected"
        self._connection.transport.write(piece)

    async def flood(self, pieces: Sequence[bytes]) -> None:
        """Write all pieces, each as soon as the socket takes it."""
        assert self._connection is not None, "the end is not connected"
        transport = self._connection.transport
        for piece in pieces:
            transport.write(piece)
            while transport.get_write_buffer_size() > _BUFFER:  # noqa: ASYNC110  (the transport has no event for it)
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)

    async def _read(self) -> None:
        connection = self._connection
        assert connection is not None, "the end is not connected"
        try:
            async for frame in connection:
                call = orjson.loads(frame)
                params = call.get("params", {})
                if call["action"] in {"send_group_msg", "send_msg"}:
                    self._said.put_nowait(_text(params.get("message")))
                reply = {"status": "ok", "retcode": 0, "data": _data(call["action"], self.account)}
                await connection.send(orjson.dumps({**reply, "echo": call.get("echo")}), text=True)
        except ConnectionClosed:
            pass


def _data(action: str, account: int) -> dict[str, Any]:
    match action:
        case "get_version_info":
            return {"app_name": "NapCat.Onebot", "protocol_version": "v11", "app_version": "4.8.0"}
        case "get_login_info":
            return {"user_id": account, "nickname": f"bench-{account}"}
        case _:
            return {"message_id": 1}


def _text(message: Any) -> str:
    if isinstance(message, str):
        return message
    return "".join(segment["data"].get("text", "") for segment in message if segment["type"] == "text")


def pieces(frames: list[bytes]) -> list[bytes]:
    """Frames as `End.flood` writes them."""
    return chunks(frames, _CHUNK)


def is_answer(text: str, word: str) -> bool:
    """Whether the application said `word`."""
    return text.startswith(CONTROL + word)


async def ceiling(frames: list[bytes]) -> float:
    """Frames per second that this generator alone can send, into a socket whose reader throws them away."""
    listening = socket.create_server(("127.0.0.1", 0))
    expected = sum(map(len, frames))
    ended: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def swallow() -> None:
        with listening, listening.accept()[0] as link:
            head = b""
            while b"\r\n\r\n" not in head:
                head += link.recv(4096)
            link.sendall(_accept(head))
            left = expected
            while left > 0:
                got = len(link.recv(1 << 20))
                if not got:
                    break
                left -= got
            loop.call_soon_threadsafe(ended.set_result, time.perf_counter())

    sink = threading.Thread(target=swallow, name="sink", daemon=True)
    sink.start()
    connection = await connect(
        f"ws://127.0.0.1:{listening.getsockname()[1]}/", compression=None, ping_interval=None, proxy=None
    )
    end = End("", 0, asyncio.Queue())
    end._connection = connection  # noqa: SLF001  (an end without a reader: nothing is answered here)
    began = time.perf_counter()
    await end.flood(pieces(frames))
    took = await asyncio.wait_for(ended, 30) - began
    connection.transport.abort()
    return len(frames) / took


def _accept(head: bytes) -> bytes:
    named = (line.partition(b":") for line in head.split(b"\r\n"))
    key = next(value.strip() for name, _, value in named if name.lower() == b"sec-websocket-key")
    proof = b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
        + proof
        + b"\r\n\r\n"
    )

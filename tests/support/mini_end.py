"""A small protocol end: it dials a worker in one of four costumes, reports messages and answers what it is asked.

Written from how the ends behave, apart from `pallas.simulate` and from the product's parser, so that a mistake there
is not made here as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

Json = dict[str, Any]
COSTUMES = ("napcat", "llonebot", "lagrange", "gocq")
AGENTS = {
    "napcat": "OneBot/11",
    "llonebot": "LLOneBot/7.0.2",
    "lagrange": "Lagrange.OneBot",
    "gocq": "CQHttp/4.15.0",
}
GROUP, USER = 700001, 800001
_HANDSHAKE_S = 2.0


def headers(costume: str, self_id: str, token: str = "", role: str = "Universal") -> dict[str, str]:
    """What the costume sends with its upgrade, the User-Agent included."""
    sent = {"X-Self-ID": self_id, "User-Agent": AGENTS[costume]}
    if costume in {"napcat", "llonebot"}:
        return {**sent, "x-client-role": role, "Authorization": f"Bearer {token}"}
    if costume == "lagrange":
        return {**sent, "X-Client-Role": "Api" if role == "API" else role, "Authorization": f"Bearer {token}"}
    return {**sent, "X-Client-Role": role, **({"Authorization": f"Token {token}"} if token else {})}


def report(costume: str, self_id: str, text: str, seq: int, /, **more: Any) -> Json:
    """One message of the group as an account of this costume reports it; `more` replaces fields."""
    event: Json = {
        "time": int(time.time()),
        "self_id": int(self_id),
        "post_type": "message",
        "message_type": "group",
        "sub_type": "normal",
        "group_id": GROUP,
        "user_id": USER,
        "raw_message": text,
        "message": [{"type": "text", "data": {"text": text}}],
        "sender": {"user_id": USER, "nickname": "someone", "card": "", "role": "member"},
    }
    match costume:
        case "napcat":
            local = int.from_bytes(hashlib.sha256(f"{self_id} {seq}".encode()).digest()[:4], "big") >> 1
            event |= {"message_id": local, "message_seq": local, "real_id": local, "real_seq": str(seq)}
        case "llonebot":
            event |= {"message_id": _signed(zlib.crc32(f"2-{GROUP}-{seq}".encode())), "message_seq": seq}
        case "lagrange":
            event |= {"message_id": _signed((seq & 0xFFFF) << 16 | 0x5A17), "anonymous": None, "message_style": None}
        case "gocq":
            escaped = text.replace("&", "&amp;").replace("[", "&#91;").replace("]", "&#93;")
            event |= {"message_id": _signed(zlib.crc32(f"{GROUP}-{seq}".encode())), "message_seq": seq}
            event |= {"message": escaped, "raw_message": escaped, "anonymous": None}
    return {**event, **more}


class MiniEnd:
    """One socket of one account; `respond` makes the answer to an action, None for none."""

    def __init__(
        self,
        url: str,
        costume: str = "napcat",
        self_id: str = "900001",
        *,
        token: str = "",
        role: str = "Universal",
        given: Mapping[str, str] | None = None,
        respond: Callable[[Json], Json | None] | None = None,
    ) -> None:
        self.url = url
        self.costume = costume
        self.self_id = self_id
        self.headers = headers(costume, self_id, token, role) if given is None else dict(given)
        self.asked: list[Json] = []
        self.closed: tuple[int, str] | None = None
        self._role = role
        self._respond = respond or self.answer
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return await self.dial()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.hang_up()

    @property
    def sent(self) -> list[str]:
        """The texts of the messages it was asked to send."""
        asked = [one for one in self.asked if one["action"].startswith("send_")]
        return ["".join(part["data"].get("text", "") for part in one["params"]["message"]) for one in asked]

    async def dial(self) -> Self:
        """Connect, or fail as websockets does; with a role that tells events, say so first."""
        self._socket = await connect(
            self.url,
            additional_headers={name: value for name, value in self.headers.items() if name != "User-Agent"},
            user_agent_header=self.headers.get("User-Agent"),
            open_timeout=_HANDSHAKE_S,
            ping_interval=None,
            close_timeout=1,
            compression=None,
            max_size=None,
            proxy=None,
        )
        self.closed = None
        self._reader = asyncio.create_task(self._read(self._socket))
        if self._role != "API" and "X-Self-ID" in self.headers:
            await self.tell(self.meta("lifecycle", sub_type="connect"))
        return self

    async def hang_up(self) -> None:
        """Close politely; nothing happens where it is closed."""
        if self._socket is not None and self._reader is not None:
            if self.closed is None:
                await self._socket.close()
            await self._reader

    def cut(self) -> None:
        """Break the connection as a pulled cable does, as far as that can be played."""
        if self._socket is not None:
            self._socket.transport.abort()

    def freeze(self) -> None:
        """Read nothing more and answer no ping: the link stands open and nobody is there."""
        if self._socket is not None:
            self._socket.transport.pause_reading()

    async def tell(self, event: Json) -> None:
        """Send an event, or an answer."""
        await self.write(json.dumps(event, ensure_ascii=False))

    async def write(self, frame: str | bytes) -> None:
        """Send a text frame with just these bytes."""
        assert self._socket is not None
        await self._socket.send(frame, text=True)

    async def say(self, text: str, seq: int, **more: Any) -> None:
        """Report a message of the group."""
        await self.tell(report(self.costume, self.self_id, text, seq, **more))

    def meta(self, kind: str, **more: Any) -> Json:
        """A lifecycle or heartbeat event."""
        base = {"time": int(time.time()), "self_id": int(self.self_id), "post_type": "meta_event"}
        return {**base, "meta_event_type": kind, **more}

    def answer(self, request: Json) -> Json | None:
        """How this costume answers a request, the echo as it came."""
        echo = {"echo": request["echo"]} if "echo" in request else {}
        match request["action"]:
            case "send_group_msg" | "send_private_msg":
                data: Json | None = {"message_id": 4000 + len(self.asked)}
            case "get_login_info":
                data = {"user_id": int(self.self_id), "nickname": f"{self.costume} {self.self_id}"}
            case "get_version_info":
                data = {"app_name": "mini-end", "app_version": "0", "protocol_version": "v11"}
            case _:
                code = 404 if self.costume in {"lagrange", "gocq"} else 1404
                return {"status": "failed", "retcode": code, "data": None, **echo}
        return {"status": "ok", "retcode": 0, "data": data, **echo}

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for frame in socket:
                request = json.loads(frame)
                self.asked.append(request)
                reply = self._respond(request)
                if reply is not None:
                    with contextlib.suppress(ConnectionClosed):
                        await socket.send(json.dumps(reply, ensure_ascii=False))
        except ConnectionClosed:
            pass
        finally:
            self.closed = (socket.close_code or 1006, socket.close_reason or "")


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number

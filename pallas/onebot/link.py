"""One WebSocket of one account: frames out, answers matched to calls.

State belongs to the socket, never to the account: a late close of an old link cannot touch a newer one. A call that
was written and has no answer is unknown, not failed, and nothing here repeats it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol

from pallas.errors import NotSent, SendUnknown
from pallas.model import ActionReply
from pallas.onebot.ends import End
from pallas.onebot.wire import action

NOT_CONNECTED = -1
TIMED_OUT = -2
CHANNEL_BROKE = -3


class Role(StrEnum):
    """What a socket carries: some ends split actions and events over two."""

    UNIVERSAL = "universal"
    API = "api"
    EVENT = "event"


class Socket(Protocol):
    """The open WebSocket under a link."""

    async def write(self, frame: bytes) -> None:
        """Send one text frame.

        Raises ConnectionError, with nothing written, where the socket is not open, and BrokenPipeError where it
        broke while the frame was on its way.
        """

    async def close(self, code: int, reason: str) -> None:
        """Close with a code."""


class Link:
    """An open socket; `bot_id` is empty while only its first frame can tell whose it is."""

    __slots__ = (
        "_counter",
        "_nonce",
        "_socket",
        "_waiting",
        "bot_id",
        "end",
        "interval_ms",
        "is_open",
        "number",
        "opened_at",
        "peer",
        "role",
        "user_agent",
        "version",
    )

    def __init__(
        self,
        socket: Socket,
        number: int,
        *,
        bot_id: str,
        role: Role,
        end: End,
        version: str,
        user_agent: str,
        peer: str,
        opened_at: float,
    ) -> None:
        self._socket = socket
        self.number = number
        self.bot_id = bot_id
        self.role = role
        self.end = end
        self.version = version
        self.user_agent = user_agent
        self.peer = peer
        self.opened_at = opened_at
        self.interval_ms = 0
        self.is_open = True
        self._nonce = secrets.token_hex(8)
        self._counter = 0
        self._waiting: dict[str, asyncio.Future[ActionReply]] = {}

    def __repr__(self) -> str:
        return (
            f"<Link {self.number} {self.bot_id or '?'} {self.role} {self.end} {'open' if self.is_open else 'closed'}>"
        )

    @property
    def waiting(self) -> int:
        """Calls without an answer."""
        return len(self._waiting)

    async def call(
        self, name: str, params: Mapping[str, Any], timeout_s: float, written: Callable[[], None] | None = None
    ) -> ActionReply:
        """Have the end act and return its answer, whatever it says; `written` is called once the frame is out.

        Raises NotSent where the frame was surely not written, SendUnknown where it was and no answer came.
        """
        if not self.is_open:
            raise NotSent(f"account {self.bot_id}: its link is closed, {name} was not sent", NOT_CONNECTED)
        self._counter += 1
        echo = f"{self._nonce}-{self._counter}"
        frame = action(name, params, echo)
        answer: asyncio.Future[ActionReply] = asyncio.get_running_loop().create_future()
        self._waiting[echo] = answer
        try:
            # The limit includes the writing: an end that stops reading would hold the caller for ever.
            async with asyncio.timeout(timeout_s):
                await self._socket.write(frame)
                if written is not None:
                    written()
                return await answer
        except BrokenPipeError as error:
            raise SendUnknown(
                f"account {self.bot_id}: its link broke while {name} was written; it may have been done", TIMED_OUT
            ) from error
        except ConnectionError as error:
            raise NotSent(f"account {self.bot_id}: {name} was not sent: {error}", CHANNEL_BROKE) from error
        except TimeoutError:
            raise SendUnknown(
                f"account {self.bot_id}: no answer to {name} within {timeout_s:g} s; it may have been done", TIMED_OUT
            ) from None
        finally:
            self._waiting.pop(echo, None)

    def answered(self, reply: ActionReply) -> bool:
        """Give an answer to the call it belongs to; False where none waits for it."""
        if reply.more or not isinstance(reply.echo, str):
            return reply.more
        answer = self._waiting.get(reply.echo)
        if answer is None or answer.done():
            return False
        answer.set_result(reply)
        return True

    def lost(self) -> None:
        """The socket is gone: calls that were written are unknown from now on."""
        self.is_open = False
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(
                    SendUnknown(
                        f"account {self.bot_id}: its link closed before the answer; the call may have been done",
                        TIMED_OUT,
                    )
                )
                answer.exception()

    async def close(self, code: int, reason: str) -> None:
        """Close the socket; `lost` follows when it is down."""
        await self._socket.close(code, reason)

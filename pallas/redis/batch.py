"""Commands of one loop turn go to Redis as one write, without redis-py repeating any of them.

A caller that is cancelled does not disturb its neighbours; one refused command fails alone; a batch whose
connection broke fails all its members as *unknown*, never as "not done". A reply later than `late_s` frees its
callers as unknown while the connection goes on reading: a slow server is not a dead one. Where no connection answers
any more, what still waits for one is given up unsent, so that nothing queues without end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol

import structlog

from pallas.errors import RedisUnavailable, ReplyError, ReplyUnknown
from pallas.failure import describe
from pallas.tasks import Tasks

_log = structlog.get_logger()
_SMALLEST_SHARE = 32
Command = tuple[bytes | str | int, ...]
Then = Callable[[Any], None]
"""Who waits for a reply: called once, with a raw RESP2 reply or a `pallas.errors.RedisError`."""


class Transport(Protocol):
    """Carries one batch; replies stand in the commands' order, a refused command's reply is a `ReplyError`."""

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send and read. Raises RedisUnavailable (surely not sent) or ReplyUnknown (may have run)."""

    async def close(self) -> None:
        """Drop the connection."""


class _Batch:
    __slots__ = ("commands", "late", "waiting")

    def __init__(self, commands: list[Command], waiting: list[Then]) -> None:
        self.commands = commands
        self.waiting = waiting
        self.late: asyncio.TimerHandle | None = None


class Batcher:
    """Gathers commands and keeps at most one batch in flight per transport."""

    def __init__(
        self, transports: Sequence[Transport], tasks: Tasks, *, late_s: float = 0.3, max_batch: int = 256
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = deque(transports)
        self._transports = tuple(transports)
        self._tasks = tasks
        self._late_s = late_s
        self._max_batch = max_batch
        self._commands: list[Command] = []
        self._waiting: list[Then] = []
        self._flush_due = False
        self._is_closed = False
        self._aged = 0
        self._ageing: asyncio.TimerHandle | None = None
        self.last_reply = monotonic()
        """When Redis last answered anything (monotonic seconds)."""

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Queue a command; the future gives its raw RESP2 reply, or raises a `pallas.errors.RedisError`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.ask(command, partial(_resolve, future))
        return future

    def ask(self, command: Command, then: Then) -> None:
        """Queue a command; `then` is called with its reply or error in the turn that brings it, without a task."""
        self._commands.append(command)
        self._waiting.append(then)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._is_closed:
            self._give_up_queued(len(self._commands), "the Redis client is closed")
        while self._commands and self._idle:
            # The most recently used transport first: batches stay large and idle connections stay idle.
            # Shares, not all at once: the server works on one while the next is packed.
            share = min(self._max_batch, max(_SMALLEST_SHARE, len(self._commands) // len(self._idle)))
            transport = self._idle.pop()
            batch = _Batch(self._commands[:share], self._waiting[:share])
            del self._commands[:share], self._waiting[:share]
            self._aged = max(0, self._aged - len(batch.commands))
            batch.late = self._loop.call_later(self._late_s, self._give_up, batch)
            self._tasks.start(self._carry(transport, batch), "redis.batch")
        if self._commands and self._ageing is None:
            self._ageing = self._loop.call_later(self._late_s, self._age)

    def _age(self) -> None:
        self._ageing = None
        # What was queued a round ago has waited long enough, unless replies come and the queue only is long.
        if self._aged and monotonic() - self.last_reply > self._late_s:
            self._give_up_queued(self._aged, f"not sent: no connection answered for {self._late_s * 1000:.0f} ms")
        self._aged = len(self._commands)
        if self._commands:
            self._ageing = self._loop.call_later(self._late_s, self._age)

    def _give_up_queued(self, number: int, words: str) -> None:
        unsent = _Batch(self._commands[:number], self._waiting[:number])
        del self._commands[:number], self._waiting[:number]
        self._fail(unsent, RedisUnavailable(words))

    async def _carry(self, transport: Transport, batch: _Batch) -> None:
        try:
            replies = await transport.exchange(batch.commands)
        except (RedisUnavailable, ReplyUnknown) as error:
            self._fail(batch, error)
        except BaseException:
            self._fail(batch, ReplyUnknown("the exchange with Redis was interrupted"))
            await transport.close()
            raise
        else:
            self.last_reply = monotonic()
            self._tell(batch, replies)
        finally:
            if batch.late is not None:
                batch.late.cancel()
            self._idle.append(transport)
            if self._commands and not self._flush_due:
                self._flush_due = True
                self._loop.call_soon(self._flush)

    def _give_up(self, batch: _Batch) -> None:
        self._fail(batch, ReplyUnknown(f"no reply from Redis within {self._late_s * 1000:.0f} ms"))

    def _fail(self, batch: _Batch, error: Exception) -> None:
        self._tell(batch, [error] * len(batch.waiting))

    @staticmethod
    def _tell(batch: _Batch, replies: Sequence[Any]) -> None:
        # Told once: to whom a reply was late it does not come again.
        waiting, batch.waiting = batch.waiting, []
        for then, reply in zip(waiting, replies, strict=bool(waiting)):
            try:
                then(reply)
            except Exception as error:
                # A fault of ours in one caller must not cost its neighbours their replies.
                _log.error("reply.failed", **describe(error))

    async def close(self) -> None:
        """Drop every connection; commands still queued, and later ones, fail as not sent."""
        self._is_closed = True
        if self._ageing is not None:
            self._ageing.cancel()
        self._give_up_queued(len(self._commands), "the Redis client is closed")
        for transport in self._transports:
            await transport.close()


def _resolve(future: asyncio.Future[Any], reply: Any) -> None:
    if future.done():
        return
    if not isinstance(reply, Exception):
        future.set_result(reply)
        return
    future.set_exception(reply)
    if not isinstance(reply, ReplyError):
        # A caller that was cancelled meanwhile never looks; its silence is not an error of ours.
        future.exception()

"""Looks at the cluster for the pages: bounded, shared by everybody who asks, and with a memory.

However many pages poll, Redis is read at most once per `share_s`. Where it cannot be read the last known answer is
kept beside the time since when the hub is blind: a page shows old rows as old, never as now and never as none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from pallas.errors import RedisError, ReplyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pallas.clock import Clock
    from shard.view import Books, BotRow, ClusterView, DeadRow, Readiness, ShardRow

T = TypeVar("T")

_SHARE_S = 0.5
_LIMIT_S = 2.0


@dataclass(slots=True, frozen=True)
class Look(Generic[T]):
    """The last known value and its time; `blind_since` is `None` where that is now."""

    value: T | None
    as_of: float | None
    blind_since: float | None
    why: str = ""


class Reading(Generic[T]):
    """One thing that is read from the cluster."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[T]],
        clock: Clock,
        *,
        share_s: float = _SHARE_S,
        limit_s: float = _LIMIT_S,
    ) -> None:
        """An answer is shared for `share_s`; a read is given up after `limit_s`."""
        self._name = name
        self._read = read
        self._clock = clock
        self._share_s = share_s
        self._limit_s = limit_s
        self._turn = asyncio.Lock()
        self._tried_at: float | None = None
        self._look: Look[T] = Look(value=None, as_of=None, blind_since=None)

    async def look(self, share_s: float | None = None) -> Look[T]:
        """What is there now, or what was there and since when it cannot be seen; never raises `RedisError`.

        `share_s` is for those who are content with an older answer.
        """
        share_s = self._share_s if share_s is None else share_s
        # A failure is shared as well: a queue of readers must not wait out the limit one after the other.
        async with self._turn:
            if self._tried_at is None or self._clock.mono() - self._tried_at >= share_s:
                self._look = await self._read_once()
                self._tried_at = self._clock.mono()
            return self._look

    async def _read_once(self) -> Look[T]:
        log = structlog.get_logger()
        began_at = self._clock.wall_s()
        try:
            async with asyncio.timeout(self._limit_s):
                value = await self._read()
        except (RedisError, TimeoutError) as problem:
            before = self._look
            if before.blind_since is None:
                log.warning("view.blind", what=self._name, why=_why(problem, self._limit_s))
            since = began_at if before.blind_since is None else before.blind_since
            return Look(before.value, before.as_of, since, _why(problem, self._limit_s))
        if self._look.blind_since is not None:
            log.info("view.restored", what=self._name, blind_s=round(began_at - self._look.blind_since, 1))
        return Look(value, began_at, None)


class Readings:
    """Everything the pages read, each with its own memory."""

    def __init__(self, view: ClusterView, clock: Clock) -> None:
        """Reads through `view`; nothing is read before somebody asks."""
        self.clock = clock
        self.bots: Reading[list[BotRow]] = Reading("bots", view.bots, clock)
        self.shards: Reading[list[ShardRow]] = Reading("shards", view.shards, clock)
        self.books: Reading[Books] = Reading("books", view.books, clock)
        self.dead: Reading[list[DeadRow]] = Reading("dead", view.dead, clock)
        self.ready: Reading[Readiness] = Reading("ready", view.ready, clock)


def _why(problem: Exception, limit_s: float) -> str:
    # The text of a client's error may hold an address with a password; its kind says enough.
    if isinstance(problem, ReplyError):
        return f"the server answered {problem.code}"
    if isinstance(problem, TimeoutError):
        return f"no answer within {limit_s:g} s"
    return "no connection or no answer"

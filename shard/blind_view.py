"""A deployment that cannot be looked at: every read says why.

Commands print what they know without Redis either way, so "nothing runs here" is an answer, not a crash.
"""

from __future__ import annotations

from pallas.errors import RedisUnavailable
from shard.view import Books, BotRow, DeadRow, Readiness, ShardRow


class BlindView:
    """A `ClusterView` with nothing behind it; `why` says what is missing and what to do."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def bots(self) -> list[BotRow]:
        raise RedisUnavailable(self._why)

    async def shards(self) -> list[ShardRow]:
        raise RedisUnavailable(self._why)

    async def books(self) -> Books:
        raise RedisUnavailable(self._why)

    async def dead(self) -> list[DeadRow]:
        raise RedisUnavailable(self._why)

    async def ready(self) -> Readiness:
        return Readiness(ready=False, reason="redis_unavailable", round_trip_ms=None)

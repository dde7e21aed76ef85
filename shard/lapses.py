"""Which worker epochs are dead, as far as this worker can be sure of it.

An epoch is dead where its lease has lapsed by Redis's clock, where its shard has another epoch or none by now, or where
the lease was not renewed for its whole life by our own clock: so that a clock of Redis that was set back does not keep
dead workers alive. A dead epoch stays dead, and of those that were given out after the look nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from pallas.clock import Clock
from pallas.keys import Keys
from pallas.redis import Redis, script
from shard.registry import read_lease

_log = structlog.get_logger()


class Lapses:
    """What this worker knows of all epochs; `life_s` is a lease's life where its record does not say."""

    def __init__(self, redis: Redis, keys: Keys, clock: Clock, *, life_s: float) -> None:
        self._redis = redis
        self._keys = keys
        self._clock = clock
        self._life_s = life_s
        self._looked = False
        self._newest = 0
        self._seen: dict[int, tuple[int, float]] = {}
        """Live epochs: until when, in Redis's milliseconds, and since when we have seen that end unchanged."""
        self._lives: Mapping[int, float] = {}

    @property
    def live(self) -> frozenset[int]:
        """The epochs that were alive at the last look."""
        return frozenset(self._seen)

    @property
    def has_looked(self) -> bool:
        """Whether anything is known yet."""
        return self._looked

    async def look(self) -> None:
        """Read the leases anew. Raises RedisError."""
        read = script("leases_read")
        call = read.named(leases=self._keys.leases, epoch=self._keys.epoch)
        now_ms, flat, last = await self._redis.run(read, call)
        now = self._clock.mono()
        newest = int(last) if last.isdigit() else self._newest
        if newest < self._newest:
            # An older look, answered after a newer one; or Redis forgot all, and no lease has been taken since.
            return
        self._newest = newest
        seen: dict[int, tuple[int, float]] = {}
        lives: dict[int, float] = {}
        for record in flat[1::2]:
            try:
                epoch, until_ms, info = read_lease(record)
                lives[epoch] = float(info.get("lease_s") or self._life_s)
            except (ValueError, TypeError, UnicodeDecodeError):
                _log.warning("lease.foreign_value", key=self._keys.leases)
                continue
            if until_ms <= now_ms:
                continue
            known = self._seen.get(epoch)
            seen[epoch] = known if known is not None and known[0] == until_ms else (until_ms, now)
        self._seen, self._lives, self._looked = seen, lives, True

    def is_dead(self, epoch: int) -> bool:
        """Whether the epoch surely can hold nothing any more; 0 is the epoch of what was given back."""
        if not epoch:
            return True
        if not self._looked:
            return False
        known = self._seen.get(epoch)
        if known is None and self._newest and epoch > self._newest:
            # Given out after we looked.
            return False
        return known is None or self._clock.mono() - known[1] > self._lives.get(epoch, self._life_s)

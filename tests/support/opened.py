"""What tests of the Redis layer are made of: an open client, clocks that tests move, an epoch that never asks Redis."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator

from pallas.errors import LeaseLost
from pallas.redis import Redis, open_redis, parse_url
from pallas.tasks import Tasks


@contextlib.asynccontextmanager
async def opened(url: str, *, late_ms: int = 2000, dead_after_ms: int = 4000) -> AsyncIterator[Redis]:
    """A client that is closed with the context. Its limits suit a busy machine; tests of lateness set their own."""
    tasks = Tasks()
    client = open_redis(parse_url(url), tasks, late_ms=late_ms, dead_after_ms=dead_after_ms)
    try:
        yield client
    finally:
        await client.close()
        await tasks.stop()


class HandClock:
    """Both clocks of `pallas.clock.Clock`, moved by hand."""

    def __init__(self, wall_s: float = 1_800_000_000.0) -> None:
        self.wall = wall_s
        self.run = 1000.0

    def wall_s(self) -> float:
        return self.wall

    def mono(self) -> float:
        return self.run

    def advance(self, seconds: float) -> None:
        """Let time pass on both."""
        self.wall += seconds
        self.run += seconds


class FakeEpoch:
    """A worker's lease as claims see it: held until a test says that it lapsed."""

    def __init__(self, shard_id: int, epoch: int = 0) -> None:
        self.shard_id = shard_id
        self.epoch = epoch or 1_700_000_000 + shard_id
        self.is_held = True
        self._nonce = 0

    def token(self) -> bytes:
        if not self.is_held:
            raise LeaseLost("no lease")
        self._nonce += 1
        return struct.pack(">HLL", self.shard_id, self.epoch, self._nonce)

    def allows(self, token: bytes) -> bool:
        return self.is_held and int.from_bytes(token[2:6], "big") == self.epoch

    async def held(self) -> None:
        if not self.is_held:
            raise AssertionError("a test that lapses an epoch does not wait for a new one")

    def lapse(self) -> None:
        self.is_held = False

    def renew(self) -> None:
        """A new epoch, as a worker takes after a lapse."""
        self.epoch += 1000
        self.is_held = True

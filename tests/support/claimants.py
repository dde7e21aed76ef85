"""Several workers' claims on one server, each with a client and an epoch of its own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pallas.claim import Claim, Verdict
from pallas.claims import Claims
from pallas.keys import Bucket, Keys, encode
from pallas.metrics import Meters
from pallas.model import Outcome, Reason
from pallas.redis import Redis, open_redis, parse_url, script
from pallas.tasks import Tasks
from tests.support.opened import FakeEpoch

TIME_S = 1_800_000_000
"""Divisible by 3600: the first second of an hour, and of a slot."""
GROUP = "100200300"
KEYS = Keys("test")
_EPOCHS = itertools.count(1_700_000_000, 100_000)
"""No epoch is given out twice, as tokens are not; in between there is room for a worker's later ones."""


def said(user: str, text: str) -> bytes:
    """A digest of who said what, as long as the product's."""
    return blake2b(f"{user}\0{text}".encode(), digest_size=8).digest()


@dataclass(slots=True, frozen=True)
class Books:
    """One bucket's books."""

    counts: dict[str, int]
    open: int

    @property
    def distinct(self) -> int:
        return self.counts.get("distinct", 0)

    @property
    def ended(self) -> int:
        return sum(count for name, count in self.counts.items() if name != "distinct")


class Claimant:
    """One worker: its claims, and short ways to make them."""

    def __init__(
        self, redis: Redis, number: int, tasks: Tasks, *, ttl_s: int, epochs: type[FakeEpoch] = FakeEpoch
    ) -> None:
        self.redis = redis
        self.number = number
        self.epoch = epochs(number, next(_EPOCHS))
        self.meters = Meters()
        self.claims = Claims(redis, self.epoch, tasks, self.meters, ttl_s=ttl_s)
        self._marks = 0

    def claim(
        self,
        seq: int | None,
        *,
        user: str = "7",
        time_s: int = TIME_S,
        mark: str = "",
        group: str = GROUP,
        space: str = "",
        tolerance_s: int = 0,
    ) -> Claim:
        """A report's attempt; without a `mark` it is a report that no account has made before."""
        space = space or encode(group)
        self._marks += 1
        return Claim(KEYS.bucket(space), space, seq, time_s, user, mark or f"{self.number}:{self._marks}", tolerance_s)

    async def take(self, claim: Claim, user: str = "7", text: str = "hello", patience_s: float = 20.0) -> Verdict:
        """Ask for an entry, until it is decided."""
        return await self.claims.take(claim, lambda: said(user, text), patience_s)

    async def report(self, seq: int | None, *, user: str = "7", text: str = "hello", **about: Any) -> Verdict:
        """Claim a message that was said in the group."""
        return await self.take(self.claim(seq, user=user, **about), user, text)

    def handled(self, claim: Claim) -> None:
        """Say that the message was handled."""
        self.claims.end(claim, Outcome.HANDLED, Reason.OK)

    async def settled(self) -> None:
        """Wait until every end is confirmed."""
        assert await self.claims.settled(10.0)

    async def books(self, bucket: Bucket | None = None) -> Books:
        """The books of the group's bucket."""
        bucket = bucket or KEYS.bucket(encode(GROUP))
        read = script("books_read")
        flat, number, *_ = await self.redis.run(
            read, read.named(books=bucket.books, open=bucket.open, limit=0, living=b"", own=b"")
        )
        counts = {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}
        return Books(counts, number)


@contextlib.asynccontextmanager
async def claimants(
    url: str,
    count: int,
    *,
    ttl_s: int = 86_400,
    late_ms: int = 2000,
    dead_after_ms: int = 4000,
    epochs: type[FakeEpoch] = FakeEpoch,
) -> AsyncIterator[list[Claimant]]:
    """So many workers on one server; closed with the context."""
    tasks = Tasks()
    # The in-memory server belongs to its client: its workers share one.
    clients = [
        open_redis(parse_url(url), tasks, late_ms=late_ms, dead_after_ms=dead_after_ms)
        for _ in range(1 if url == "memory://" else count)
    ]
    try:
        yield [
            Claimant(clients[number % len(clients)], number, tasks, ttl_s=ttl_s, epochs=epochs)
            for number in range(count)
        ]
    finally:
        for client in clients:
            await client.close()
        await tasks.stop()

"""Open entries that nobody goes on with: ended by whoever sees them, so that no message ends silently.

Every worker does this for the whole deployment. It waits `after_s` from when it first found the epoch dead, or the
entry given back, and counts only time in which it held a lease and Redis answered: standbys have the first right. Then
what had not begun is dead(holder_lost), and what had is dead(sent_unknown). What a worker holds itself by Redis's word
and knows nothing of, it ends likewise; but where only the end was forgotten, it says so again. The same look tells
whether each bucket's books balance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from pallas.claim import TOKEN_BYTES, epoch_of, place_in, said_in, space_of
from pallas.claims import Claims
from pallas.clock import Clock
from pallas.endings import abandoning
from pallas.errors import RedisError
from pallas.keys import BUCKETS, Bucket, Keys
from pallas.log_limit import LimitedLog, LogLimit
from pallas.metrics import Meters
from pallas.model import Reason
from pallas.redis import Redis, script
from shard.lapses import Lapses

_log = structlog.get_logger()
_REASONS = {b"c": Reason.HOLDER_LOST, b"e": Reason.SENT_UNKNOWN}
_SWEEPS = 5
"""At least so many sweeps see an entry before one ends it."""
_LOOKED_AT = 2000
"""Open entries of one bucket that one sweep looks at; further ones wait for the next."""


class Orphans:
    """The sweep of one worker."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        claims: Claims,
        lapses: Lapses,
        clock: Clock,
        meters: Meters,
        *,
        after_s: float,
        is_leased: Callable[[], bool],
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._claims = claims
        self._lapses = lapses
        self._clock = clock
        self._meters = meters
        self._after_s = after_s
        self._is_leased = is_leased
        self._unbalanced: dict[int, int] = {}
        self._since: dict[int | bytes, float] = {}
        """Dead epochs with open entries, and single entries: since when nobody goes on with them, in served seconds."""
        self._served_s = 0.0
        """Time in which we held a lease and Redis answered: else standbys may be unable to take anything either."""
        self._swept_at = clock.mono()
        self.complaints = LimitedLog(LogLimit(per_min=6, mono=clock.mono), _log)

    async def sweep(self) -> None:
        """Look at every bucket once. Raises RedisError where none could be read."""
        await self._lapses.look()
        read = script("books_read")
        epoch = self._claims.epoch
        own = epoch.to_bytes(4, "big") if epoch else b""
        living = b"".join(other.to_bytes(4, "big") for other in sorted(self._lapses.live))
        buckets = [self._keys.bucket_keys(number) for number in range(BUCKETS)]
        commands = [
            read.named(books=bucket.books, open=bucket.open, limit=_LOOKED_AT, living=living, own=own)
            for bucket in buckets
        ]
        answers = await asyncio.gather(
            *(self._redis.run(read, command) for command in commands), return_exceptions=True
        )
        now = self._clock.mono()
        if self._is_leased():
            self._served_s += min(now - self._swept_at, self._after_s / _SWEEPS)
        self._swept_at = now
        since: dict[int | bytes, float] = {}
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        for bucket, answer in zip(buckets, answers, strict=True):
            if isinstance(answer, BaseException):
                continue
            counts, number, tokens, ours = answer
            self._compare(bucket, counts, number)
            left = [token for token in ours if self._is_lost_sight_of(token, since)]
            await self._end(bucket, left + [token for token in tokens if self._is_orphan(token, since)])
        self._since = since
        self._meters.unbalanced = sum(map(abs, self._unbalanced.values()))
        if failed and len(failed) == len(answers):
            raise failed[0]
        for error in failed:
            self.complaints.warning("books.unreadable", str(error))

    def _is_orphan(self, token: bytes, since: dict[int | bytes, float]) -> bool:
        if len(token) != TOKEN_BYTES:
            self.complaints.warning("orphan.foreign_token", token.hex())
            return False
        epoch = epoch_of(token)
        if not self._lapses.is_dead(epoch) or self._claims.end_again(token):
            return False
        # Epoch 0 has always been dead: what was given back counts each by itself.
        return self._is_due(epoch or token, since)

    def _is_lost_sight_of(self, token: bytes, since: dict[int | bytes, float]) -> bool:
        """Whether we hold an entry by Redis's word, and have neither anything to do for it nor an end to tell again."""
        if self._claims.has_in_hand(token):
            return False
        # At first sight it may have been confirmed while we looked.
        is_told = token in self._since and self._claims.end_again(token)
        return self._is_due(token, since) and not is_told

    def _is_due(self, name: int | bytes, since: dict[int | bytes, float]) -> bool:
        began = since[name] = self._since.get(name, self._served_s)
        return self._served_s - began >= self._after_s

    async def _end(self, bucket: Bucket, tokens: list[bytes]) -> None:
        places = await self._redis.execute("HMGET", bucket.open, *tokens) if tokens else []
        for token, place in zip(tokens, places, strict=True):
            if place is None:
                continue
            try:
                ended = await self._abandon(token, place[1:])
            except (RedisError, ValueError) as error:
                self.complaints.warning("orphan.not_ended", bucket.open, error=str(error))
                continue
            if ended in _REASONS:
                self._meters.orphans[_REASONS[ended]] += 1
                _log.warning(
                    "orphan.ended",
                    reason=_REASONS[ended].value,
                    shard_id=int.from_bytes(token[:2], "big"),
                    epoch=epoch_of(token),
                    space=space_of(place[1:]),
                )

    async def _abandon(self, token: bytes, place: bytes) -> Any:
        """End one entry; Redis decides by its state, whatever it was when we looked."""
        space = space_of(place)
        bucket = self._keys.bucket(space)
        home, field = place_in(bucket, place)
        records = await self._redis.execute("HGET", home, field) or b""
        call, command = abandoning(
            bucket,
            space,
            home,
            field,
            token,
            at=self._clock.wall_s(),
            cause=self._cause(epoch_of(token)),
            said_at=said_in(place, records, token),
        )
        return await self._redis.run(call, command)

    def _cause(self, epoch: int) -> str:
        if not epoch:
            return "given_back"
        return "holder_forgot" if epoch == self._claims.epoch else "holder_died"

    def _compare(self, bucket: Bucket, flat: list[Any], number: int) -> None:
        counts = {name: int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}
        distinct = counts.pop(b"distinct", 0)
        difference = distinct - sum(counts.values()) - number
        if difference != self._unbalanced.get(bucket.number, 0):
            _log.error(
                "books.unbalanced",
                bucket=bucket.number,
                difference=difference,
                hint="distinct messages that neither ended nor are open: something outside wrote or deleted keys",
            )
        if difference:
            self._unbalanced[bucket.number] = difference
        else:
            self._unbalanced.pop(bucket.number, None)

"""What one remembered message costs in Redis: used memory before and after a day of messages, shared by their number.

Every message is reported by two shards and then done, as in a group with two accounts on two workers. The server is
this bench's own, without an append-only file, whose buffers would count as well.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice

from bench.systems import PATIENCE_S, claims_of, valkey
from pallas.claim import Claim, Verdict
from pallas.claims import Claims
from pallas.keys import Keys, encode
from pallas.model import Outcome, Reason
from pallas.redis import Redis

MESSAGES = 100_000
GROUPS = 1_000
SPAN_S = 86_400
_AT_ONCE = 500


@dataclass(slots=True, frozen=True)
class Remembered:
    """One message of the day."""

    group: str
    seq: int
    time_s: int
    user_id: str
    body: bytes


def day(count: int, groups: int, seed: int, now_s: int) -> Iterator[Remembered]:
    """`count` messages of the last day in the order they were sent, groups by chance, sequences without gaps."""
    rng = random.Random(seed)
    seqs = [rng.randrange(65_536) for _ in range(groups)]
    for number in range(count):
        group = rng.randrange(groups)
        seqs[group] = (seqs[group] + 1) & 0xFFFF
        time_s = now_s - SPAN_S + number * SPAN_S // count
        yield Remembered(str(700_000_000 + group), seqs[group], time_s, f"8{rng.randrange(100_000)}", rng.randbytes(8))


async def bytes_per_message(*, sequenced: bool, count: int = MESSAGES, groups: int = GROUPS) -> float:
    """Redis memory per message, in bytes; without sequences both ends report contents alone."""
    async with valkey(appendonly="no") as (_, redis, _folder), AsyncExitStack() as stack:
        keys = Keys("bench")
        first, second = [await stack.enter_async_context(claims_of(redis, keys, shard)) for shard in (0, 1)]
        before = await _used(redis)
        messages = day(count, groups, 1, int(time.time()))
        while some := list(islice(messages, _AT_ONCE)):
            won = [_claim(keys, message, 0, sequenced=sequenced) for message in some]
            copies = [_claim(keys, message, 1, sequenced=sequenced) for message in some]
            assert set(await _all(first, won)) == {Verdict.WON}
            assert set(await _all(second, copies)) == {Verdict.LOST}
            for claim in won:
                first.end(claim, Outcome.HANDLED, Reason.OK)
            assert await first.settled(10.0)
        return (await _used(redis) - before) / count


def _claim(keys: Keys, message: Remembered, account: int, *, sequenced: bool) -> Claim:
    space = encode(message.group)
    seq = message.seq if sequenced else None
    mark = f"9000{account}:{message.group}:{message.seq}"
    claim = Claim(keys.bucket(space), space, seq, message.time_s, message.user_id, mark)
    if not sequenced:
        claim.body = message.body
    return claim


async def _all(claims: Claims, each: list[Claim]) -> list[Verdict]:
    return await asyncio.gather(*(claims.take(claim, bytes, PATIENCE_S) for claim in each))


async def _used(redis: Redis) -> int:
    info = (await redis.execute("INFO", "memory")).decode()
    return next(int(line.partition(":")[2]) for line in info.splitlines() if line.startswith("used_memory:"))

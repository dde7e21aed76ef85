"""New messages matched and claimed per second by one process, against redis-py doing plain `SET NX` on the same server.

The real `Claims.take`, script, batcher and lease; only the parser and the match inside the worker are left out. A round
measures every variant once, one after the other.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import redis.asyncio as aio

from bench.measure import Bar, Line, Result, keep, median, ratio, rounded
from bench.memory import bytes_per_message
from bench.systems import CLAIM_TTL_S, PATIENCE_S, claims_of, valkey
from pallas.claim import Claim, Verdict
from pallas.claims import Claims
from pallas.identity import body_digest
from pallas.keys import Bucket, Keys, encode
from pallas.model import Message
from pallas.redis import Redis

T = TypeVar("T")

CALLERS = 200
POOL = 20
PIPELINE = 100
GROUPS = 1_000
"""Groups of one round; each has as many messages as a lively one in an hour."""
_OURS, _POOL, _CONTENT, _PIPELINE = "claims", "pool", "content", "pipeline"
_COUNTS = {_OURS: 20_000, _POOL: 8_000, _CONTENT: 20_000, _PIPELINE: 20_000}
_BARS = {
    "pool_ratio": Bar(3.5),
    "pipeline_ratio": Bar(1.0),
    "pipeline_ratio_content": Bar(0.8),
    "bytes_sequenced": Bar(48, less_is_better=True),
    "bytes_plain": Bar(110, less_is_better=True),
}


@dataclass(slots=True, frozen=True)
class Cost:
    """One variant in one round: rate, CPU of this process, and the server's time in commands."""

    per_s: float
    client_us: float
    server_us: float


async def run(rounds: int) -> Result:
    """Measure all variants `rounds` times in turn, then the memory."""
    costs: dict[str, list[Cost]] = {name: [] for name in _COUNTS}
    # A rewrite of the append-only file in one variant's round would be charged to that variant.
    async with valkey(**{"auto-aof-rewrite-percentage": "0"}) as (server, redis, _):
        keys = Keys("bench")
        url = server.target.url_with_secrets()
        pool: Any = aio.BlockingConnectionPool.from_url(url, max_connections=POOL, timeout=None)
        client: Any = aio.Redis(connection_pool=pool)
        async with claims_of(redis, keys, 0) as claims:
            numbers = itertools.count(1)
            variants: dict[str, Callable[[int], Callable[[], Awaitable[None]]]] = {
                _OURS: lambda count: _sequenced(claims, keys, numbers, count),
                _POOL: lambda count: _through_pool(client, numbers, count),
                _CONTENT: lambda count: _with_content(claims, keys, numbers, count),
                _PIPELINE: lambda count: _through_pipeline(client, numbers, count),
            }
            for prepare in variants.values():
                await prepare(2_000)()
            # As a worker does once it has started.
            gc.collect()
            gc.freeze()
            gc.set_threshold(20_000, 50, 50)
            for _ in range(rounds):
                for name, prepare in variants.items():
                    costs[name].append(await _cost(redis, prepare(_COUNTS[name]), _COUNTS[name]))
        await client.aclose()
        await pool.aclose()
    return _result(costs, await bytes_per_message(sequenced=True), await bytes_per_message(sequenced=False), rounds)


async def _cost(redis: Redis, work: Callable[[], Awaitable[None]], count: int) -> Cost:
    await redis.execute("CONFIG", "RESETSTAT")
    cpu, began = time.process_time(), time.perf_counter()
    await work()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    stats = await redis.execute("INFO", "commandstats")
    server_us = sum(_usec(line) for line in stats.decode().splitlines() if _is_call(line))
    return Cost(count / took, cpu * 1e6 / count, server_us / count)


def _is_call(line: str) -> bool:
    return line.startswith(("cmdstat_evalsha:", "cmdstat_set:"))


def _usec(line: str) -> int:
    return int(line.partition("usec=")[2].partition(",")[0])


async def by_callers(items: Iterable[T], act: Callable[[T], Awaitable[None]]) -> None:
    """`act` on each item once, by `CALLERS` callers that each wait for their reply."""
    left = iter(items)

    async def caller() -> None:
        for item in left:
            await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(caller())


def _messages(numbers: Iterator[int], count: int) -> list[Message]:
    """New messages as the parser hands them on, in groups of their own, with sequences that rise in each group."""
    now = int(time.time())
    made = []
    first = next(numbers) * GROUPS
    for place, number in enumerate(itertools.islice(numbers, count)):
        turn, group = divmod(place, GROUPS)
        text = f"message {number}"
        segments = [{"type": "text", "data": {"text": text}}]
        space, user = str(1_000_000 + first + group), f"8{number % 5000:04d}"
        made.append(Message("90001", space, user, str(number), turn & 0xFFFF, now, text, (), segments, {}))
    return made


def _buckets(keys: Keys, messages: list[Message]) -> dict[str, Bucket]:
    """As the worker's match table keeps them, one for each group."""
    return {message.group_id: keys.bucket(encode(message.group_id)) for message in messages}


def _sequenced(claims: Claims, keys: Keys, numbers: Iterator[int], count: int) -> Callable[[], Awaitable[None]]:
    messages = _messages(numbers, count)
    buckets = _buckets(keys, messages)

    async def take(message: Message) -> None:
        space = message.group_id
        mark = f"{message.bot_id}:{message.message_id}"
        claim = Claim(buckets[space], space, message.seq, message.time_s, message.user_id, mark)
        verdict = await claims.take(claim, lambda: body_digest(message), PATIENCE_S)
        assert verdict is Verdict.WON

    return lambda: by_callers(messages, take)


def _with_content(claims: Claims, keys: Keys, numbers: Iterator[int], count: int) -> Callable[[], Awaitable[None]]:
    """Groups where one of two ends reports no sequences: each second message comes from that end first."""
    messages = _messages(numbers, count)
    buckets = _buckets(keys, messages)
    for message in messages[::2]:
        message.seq = None
    # The worker's match table has them from its own look, as the baseline has its keys.
    bodies = {message.message_id: body_digest(message) for message in messages}

    async def take(message: Message) -> None:
        space = message.group_id
        mark = f"{message.bot_id}:{message.message_id}"
        claim = Claim(buckets[space], space, message.seq, message.time_s, message.user_id, mark)
        claim.body = bodies[message.message_id]
        verdict = await claims.take(claim, lambda: body_digest(message), PATIENCE_S)
        assert verdict is Verdict.WON

    return lambda: by_callers(messages, take)


def _plain_keys(numbers: Iterator[int], count: int) -> list[str]:
    return [f"bench:claim:{number % GROUPS}:{number // GROUPS}" for number in itertools.islice(numbers, count)]


def _through_pool(client: Any, numbers: Iterator[int], count: int) -> Callable[[], Awaitable[None]]:
    async def take(key: str) -> None:
        assert await client.set(key, b"bench-token", nx=True, ex=CLAIM_TTL_S)

    keys = _plain_keys(numbers, count)
    return lambda: by_callers(keys, take)


def _through_pipeline(client: Any, numbers: Iterator[int], count: int) -> Callable[[], Awaitable[None]]:
    keys = _plain_keys(numbers, count)

    async def work() -> None:
        for place in range(0, count, PIPELINE):
            async with client.pipeline(transaction=False) as pipeline:
                for key in keys[place : place + PIPELINE]:
                    pipeline.set(key, b"bench-token", nx=True, ex=CLAIM_TTL_S)
                assert all(await pipeline.execute())

    return work


def _result(costs: dict[str, list[Cost]], sequenced: float, plain: float, rounds: int) -> Result:
    rates = {name: [cost.per_s for cost in each] for name, each in costs.items()}
    middle = {name: median(each) for name, each in rates.items()}
    figures = {
        "claims_per_s": middle[_OURS],
        "pool_per_s": middle[_POOL],
        "pool_ratio": ratio(rates[_OURS], rates[_POOL]),
        "pipeline_per_s": middle[_PIPELINE],
        "pipeline_ratio": ratio(rates[_OURS], rates[_PIPELINE]),
        "content_per_s": middle[_CONTENT],
        "pipeline_ratio_content": ratio(rates[_CONTENT], rates[_PIPELINE]),
        "bytes_sequenced": sequenced,
        "bytes_plain": plain,
    }

    def line(key: str, ours: float, baseline: float | None = None) -> Line:
        unit = "/s" if baseline is not None else " B"
        other = "" if baseline is None else f"{rounded(baseline)}/s"
        return Line(key, f"{rounded(ours)}{unit}", other, figures[key], _BARS[key])

    result = Result("claims", keep(figures))
    result.lines += [
        line("pool_ratio", middle[_OURS], middle[_POOL]),
        line("pipeline_ratio", middle[_OURS], middle[_PIPELINE]),
        line("pipeline_ratio_content", middle[_CONTENT], middle[_PIPELINE]),
        line("bytes_sequenced", sequenced),
        line("bytes_plain", plain),
    ]
    for name, each in costs.items():
        client_us = median([cost.client_us for cost in each])
        server_us = median([cost.server_us for cost in each])
        share = 100 * median([cost.server_us * cost.per_s / 1e6 for cost in each])
        result.notes.append(
            f"{name}: {client_us:.1f} µs CPU of this process and {server_us:.1f} µs in the server's commands each; "
            f"the server's commands run {share:.0f} % of the time"
        )
        result.figures |= {f"{name}_client_us": rounded(client_us) or 0, f"{name}_server_us": rounded(server_us) or 0}
    result.notes.append(f"medians of {rounds} rounds; {CALLERS} callers; ratios are medians of the rounds' own ratios")
    result.figures["rounds"] = rounds
    return result

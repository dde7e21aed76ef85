"""A Redis whose every answer is later than a claim waits, all the time: slow is not away, and workers go on.

The first question is always given up, so whatever gets done is done by those who ask again and wait longer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.deployment import get
from tests.support.load import QUICK, bot, loaded, told
from tests.support.proxy import Proxy
from tests.support.shards import listening
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

CLAIM_WAIT_MS = 100
LATE_S = 0.15
"""Later than a caller waits, and well before the connection is given up or a lease lapses."""
ANSWERED_S = 5.0
"""Claim and effect are each asked in vain once, then heard behind at most one other batch: 1 s on an idle machine."""


@pytest.mark.row("F29")
@pytest.mark.parametrize("seconds", [1.5, pytest.param(10.0, marks=pytest.mark.chaos)])
async def test_workers_answer_while_every_answer_of_redis_is_late(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path, request: pytest.FixtureRequest, seconds: float
) -> None:
    assert redis_url
    assert CLAIM_WAIT_MS / 1000 < LATE_S < QUICK["redis_dead_after_ms"] / 1000
    async with Proxy(valkey.port) as proxy, loaded(proxy.url, tmp_path, claim_wait_ms=CLAIM_WAIT_MS) as load:
        async with load.running():
            await load.resumed(5)
        proxy.latency_s = LATE_S
        slow_from = load.now
        await load.run(seconds)
        late = load.between(slow_from, load.now)
        await wait_until(
            lambda: late <= load.answers.keys() and all(shard.is_quiet() for shard in load._fleet),
            ANSWERED_S,
            saying="all is answered and its ends are confirmed while Redis is still slow",
        )
        worst = max(load.answers[number][0] - load.asked[number] for number in late)
        assert all(shard.meters.unknown["no_reply"] for shard in load._fleet), "it was slow enough to be noticed"
        assert all(shard.meters.lapses == 0 for shard in load._fleet), "no lease was lost to it"
        # The books are read by one that asks once.
        proxy.latency_s = 0.0
        told(request, await load.settled(), "F29", f"every answer of Redis {LATE_S * 1000:.0f} ms late", back_s=worst)


async def test_a_worker_starts_and_is_ready_while_every_answer_of_redis_is_late(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path
) -> None:
    assert redis_url
    async with Proxy(valkey.port) as proxy:
        proxy.latency_s = LATE_S
        async with listening(proxy.url, tmp_path, bot(), claim_wait_ms=CLAIM_WAIT_MS) as worker:
            # Before each take it is made sure that the prefix is ours: that question too is waited for.
            await wait_until(worker.lease.is_held, 5)
            await worker.terms.beat()
            await worker.fleet.refresh()
            assert (await asyncio.to_thread(get, f"http://127.0.0.1:{worker.port}/readyz"))[0] == 200

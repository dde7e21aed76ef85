"""How long an open entry without a living holder is left to those who saw the message too."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pallas.errors import RedisError
from shard.lapses import Lapses
from shard.orphans import Orphans
from tests.support.claimants import KEYS, Claimant, claimants
from tests.support.opened import HandClock
from tests.support.proxy import Proxy
from tests.support.valkey import ValkeyProcess

AFTER_S = 30.0


class Sweeper:
    """The sweep of a worker that holds no lease itself, on a clock of the test's; every other epoch is dead."""

    def __init__(self, claimant: Claimant) -> None:
        self.clock = HandClock()
        lapses = Lapses(claimant.redis, KEYS, self.clock, life_s=10)
        self.orphans = Orphans(claimant.redis, KEYS, lapses, self.clock, claimant.meters, after_s=AFTER_S)
        self._claimant = claimant

    async def over(self, seconds: float) -> int:
        """Sweep every two seconds for so long; how many entries are open then."""
        for _ in range(int(seconds / 2)):
            await self.orphans.sweep()
            self.clock.advance(2)
        return (await self._claimant.books()).open


@pytest.fixture
async def proxy(redis_url: str, valkey: ValkeyProcess) -> AsyncIterator[Proxy]:
    assert redis_url
    async with Proxy(valkey.port) as opening:
        yield opening


async def test_what_a_dead_epoch_held_is_ended_after_the_time(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        sweeper = Sweeper(one)
        await one.report(1)
        assert await sweeper.over(AFTER_S) == 1
        assert await sweeper.over(2) == 0


async def test_what_is_given_back_has_its_time_whatever_was_given_back_before(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        sweeper = Sweeper(one)
        for seq in (1, 2):
            claim = one.claim(seq)
            await one.take(claim)
            one.claims.release(claim)
            await one.settled()
            assert await sweeper.over(AFTER_S) == 1, seq
            assert await sweeper.over(2) == 0, seq


async def test_an_outage_of_redis_is_not_counted_for_nobody_could_take_anything(proxy: Proxy) -> None:
    async with claimants(proxy.url, 1, late_ms=100, dead_after_ms=200) as (one,):
        sweeper = Sweeper(one)
        await one.report(1)
        assert await sweeper.over(10) == 1
        proxy.stall()
        for _ in range(3):
            with pytest.raises(RedisError):
                await sweeper.orphans.sweep()
            sweeper.clock.advance(20)
        proxy.resume()
        assert await sweeper.over(10) == 1
        assert await sweeper.over(AFTER_S) == 0

"""How long an open entry that nobody goes on with is left to those who saw the message too, and what becomes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from pallas.claim import Claim, Verdict
from pallas.errors import RedisError
from shard.lapses import Lapses
from shard.orphans import Orphans
from tests.support.claimants import KEYS, Claimant, claimants
from tests.support.opened import HandClock
from tests.support.proxy import Proxy
from tests.support.valkey import ValkeyProcess

AFTER_S = 30.0


class Sweeper:
    """The sweep of a worker, on a clock of the test's; every epoch but its own is dead."""

    def __init__(self, claimant: Claimant) -> None:
        self.clock = HandClock()
        lapses = Lapses(claimant.redis, KEYS, self.clock, life_s=10)
        self.orphans = Orphans(
            claimant.redis,
            KEYS,
            claimant.claims,
            lapses,
            self.clock,
            claimant.meters,
            after_s=AFTER_S,
            is_leased=lambda: claimant.epoch.is_held,
        )
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
    async with claimants(redis_url, 2) as (one, other):
        sweeper = Sweeper(other)
        await one.report(1)
        assert await sweeper.over(AFTER_S) == 1
        assert await sweeper.over(2) == 0


async def test_what_is_given_back_has_its_time_whatever_was_given_back_before(redis_url: str) -> None:
    async with claimants(redis_url, 2) as (one, other):
        sweeper = Sweeper(other)
        for seq in (1, 2):
            claim = one.claim(seq)
            await one.take(claim)
            one.claims.release(claim)
            await one.settled()
            assert await sweeper.over(AFTER_S) == 1, seq
            assert await sweeper.over(2) == 0, seq


async def test_an_outage_of_redis_is_not_counted_for_nobody_could_take_anything(proxy: Proxy) -> None:
    async with claimants(proxy.url, 2, late_ms=100, dead_after_ms=200) as (one, other):
        sweeper = Sweeper(other)
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


async def test_time_without_a_lease_is_not_counted_for_its_standbys_can_take_nothing(redis_url: str) -> None:
    async with claimants(redis_url, 2) as (one, other):
        sweeper = Sweeper(other)
        await one.report(1)
        assert await sweeper.over(10) == 1
        other.epoch.is_held = False
        assert await sweeper.over(2 * AFTER_S) == 1
        other.epoch.is_held = True
        assert await sweeper.over(10) == 1
        assert await sweeper.over(AFTER_S) == 0


async def test_what_a_living_worker_lost_sight_of_is_ended_after_the_time(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        sweeper = Sweeper(one)
        claim = one.claim(1)
        assert await one.take(claim) is Verdict.WON
        assert await sweeper.over(2 * AFTER_S) == 1, "it is in hand, however long it takes"
        del claim
        assert await sweeper.over(AFTER_S) == 1
        assert await sweeper.over(2) == 0
        assert (await one.books()).counts == {"distinct": 1, "dead:holder_lost": 1}


ENDS: dict[str, tuple[Callable[[Claimant, Claim], None], dict[str, int]]] = {
    "handled": (lambda one, claim: one.handled(claim), {"distinct": 1, "handled": 1}),
    "unknown": (lambda one, claim: one.claims.unknown(claim, at=1.0), {"distinct": 1, "dead:sent_unknown": 1}),
}


async def rolled_back(one: Claimant, claim: Claim, end: Callable[[Claimant, Claim], None]) -> bytes:
    """End a claim, and have Redis fall back behind it, as a replica that is promoted had not heard of it yet."""
    keys = (claim.home, claim.bucket.open, claim.bucket.books)
    copies = [(await one.redis.execute("PTTL", key), await one.redis.execute("DUMP", key)) for key in keys]
    token = claim.token
    end(one, claim)
    await one.settled()
    for key, (life_ms, copy) in zip(keys, copies, strict=True):
        await one.redis.execute("RESTORE", key, max(0, life_ms), copy, "REPLACE")
    assert await one.redis.execute("HEXISTS", claim.bucket.open, token)
    return token


@pytest.mark.parametrize("lapsed", [False, True], ids=["in its epoch", "after its epoch"])
@pytest.mark.parametrize("how", ENDS)
async def test_an_end_that_redis_confirmed_and_forgot_is_told_again(redis_url: str, how: str, *, lapsed: bool) -> None:
    end, counts = ENDS[how]
    async with claimants(redis_url, 1) as (one,):
        sweeper = Sweeper(one)
        claim = one.claim(1)
        await one.take(claim)
        await one.claims.effect(claim)
        await rolled_back(one, claim, end)
        if lapsed:
            one.epoch.renew()
        else:
            await sweeper.over(2)
            assert one.meters.forgot == 0, "it might have been confirmed while the sweep looked"
        await sweeper.over(2)
        await one.settled()
        books = await one.books()
        assert (books.counts, books.open) == (counts, 0)
        assert one.meters.forgot == 1


async def test_a_message_that_was_given_back_is_not_given_back_again_where_redis_forgot_it(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        sweeper = Sweeper(one)
        claim = one.claim(1)
        await one.take(claim)
        token = await rolled_back(one, claim, lambda one, claim: one.claims.release(claim))
        # Another may have taken and answered it in between: it is shown, and nobody answers it again.
        await sweeper.over(AFTER_S - 2)
        assert await one.redis.execute("HKEYS", claim.bucket.open) == [token]
        await sweeper.over(6)
        assert (await one.books()).counts == {"distinct": 1, "dead:holder_lost": 1}


async def test_of_confirmed_ends_the_last_ones_are_remembered_and_no_more(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        tokens = []
        for seq in range(1, 8200):
            claim = one.claim(seq)
            await one.take(claim)
            tokens.append(claim.token)
            one.handled(claim)
        await one.settled()
        assert not one.claims.end_again(tokens[0])
        assert one.claims.end_again(tokens[-4000])
        await one.settled()

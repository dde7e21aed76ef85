"""Which epochs are dead: by Redis's clock, by replacement, or by silence; never one that may still be alive."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pallas.keys import LEASES_TTL_MS, Keys
from pallas.redis import Redis
from shard.lapses import Lapses
from shard.registry import Lease
from tests.support.opened import HandClock, opened
from tests.support.waiting import wait_until

KEYS = Keys("lapses")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with opened(redis_url) as client:
        yield client


def lease_of(redis: Redis, shard: int, life_s: float = 60.0) -> Lease:
    return Lease(redis, KEYS, HandClock(), shard_id=shard, life_s=life_s, info=lambda: {"lease_s": life_s})


async def looked(redis: Redis, clock: HandClock) -> Lapses:
    lapses = Lapses(redis, KEYS, clock, life_s=60.0)
    await lapses.look()
    return lapses


async def test_nobody_is_dead_before_the_first_look(redis: Redis) -> None:
    lapses = Lapses(redis, KEYS, HandClock(), life_s=60.0)
    assert not lapses.is_dead(100)
    assert lapses.is_dead(0), "what was given back is nobody's"
    assert not lapses.has_looked, "that nobody else lives is not known either"
    await lapses.look()
    assert lapses.has_looked


async def test_an_epoch_that_is_leased_is_alive_and_any_other_is_dead(redis: Redis) -> None:
    one, two = lease_of(redis, 0), lease_of(redis, 1)
    await one.take()
    await two.take()
    lapses = await looked(redis, HandClock())
    assert lapses.live == {one.epoch, two.epoch}
    assert not lapses.is_dead(one.epoch)
    assert lapses.is_dead(one.epoch - 1000)
    former = two.epoch
    await two.release()
    await two.take()
    await lapses.look()
    assert lapses.is_dead(former)
    assert not lapses.is_dead(two.epoch)


async def test_a_lapsed_lease_is_dead_without_anybody_removing_it(redis: Redis) -> None:
    one = lease_of(redis, 0, life_s=0.2)
    await one.take()
    lapses = Lapses(redis, KEYS, HandClock(), life_s=60.0)

    async def is_dead() -> bool:
        await lapses.look()
        return lapses.is_dead(one.epoch)

    assert not await is_dead()
    await wait_until(is_dead, 5)
    assert await redis.execute("HEXISTS", KEYS.leases, 0) == 1


async def test_a_lease_that_redis_keeps_alive_by_a_clock_set_back_dies_by_silence(redis: Redis) -> None:
    clock = HandClock()
    one = lease_of(redis, 0, life_s=60.0)
    await one.take()
    # As where the server's clock went back an hour right after: nobody renews, and the end stays far away.
    lapses = await looked(redis, clock)
    clock.advance(59)
    await lapses.look()
    assert not lapses.is_dead(one.epoch)
    clock.advance(2)
    await lapses.look()
    assert lapses.is_dead(one.epoch)


async def test_a_lease_that_is_renewed_lives_on(redis: Redis) -> None:
    clock = HandClock()
    one = lease_of(redis, 0, life_s=60.0)
    await one.take()
    lapses = await looked(redis, clock)
    clock.advance(50)
    ends = await redis.execute("HGET", KEYS.leases, 0)
    await wait_until(lambda: renewed(one, redis, ends), 5)
    await lapses.look()
    clock.advance(50)
    assert not lapses.is_dead(one.epoch)


async def renewed(lease: Lease, redis: Redis, former: bytes) -> bool:
    await lease._renew()
    return bool(await redis.execute("HGET", KEYS.leases, 0) != former)


async def test_a_life_longer_than_ours_is_respected(redis: Redis) -> None:
    clock = HandClock()
    one = lease_of(redis, 0, life_s=300.0)
    await one.take()
    lapses = await looked(redis, clock)
    clock.advance(100)
    assert not lapses.is_dead(one.epoch)


async def test_an_epoch_that_was_given_out_after_the_look_is_not_dead(redis: Redis) -> None:
    one, two = lease_of(redis, 0), lease_of(redis, 1)
    await one.take()
    lapses = await looked(redis, HandClock())
    await two.take()
    assert not lapses.is_dead(two.epoch)
    await two.release()
    await lapses.look()
    assert lapses.is_dead(two.epoch)


async def test_a_foreign_value_among_the_leases_hides_no_other(redis: Redis) -> None:
    one = lease_of(redis, 0)
    await one.take()
    await redis.execute("HSET", KEYS.leases, "5", b"\xffforeign", "6", "7|x|a|{}")
    await redis.execute("PEXPIRE", KEYS.leases, LEASES_TTL_MS)
    assert (await looked(redis, HandClock())).live == {one.epoch}

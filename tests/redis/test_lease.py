"""A worker's lease on its shard id: one holder, epochs that only rise, and nothing done after a lapse."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pallas.errors import LeaseLost, RedisUnavailable, ReplyUnknown, ShardTaken
from pallas.keys import Keys
from pallas.redis import Command, Redis, Script
from shard.registry import Lease, read_lease
from tests.support.opened import HandClock, opened
from tests.support.proxy import Proxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

KEYS = Keys("test")
LONG_S = 60.0
SHORT_S = 0.3


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with opened(redis_url) as opening:
        yield opening


@pytest.fixture
async def proxy(redis_url: str, valkey: ValkeyProcess) -> AsyncIterator[Proxy]:
    assert redis_url
    async with Proxy(valkey.port) as opening:
        yield opening


def lease(
    client: Redis,
    shard_id: int | None = None,
    *,
    life_s: float = LONG_S,
    clock: HandClock | None = None,
    pid: int = 41,
    lost: Callable[[], None] = lambda: None,
) -> Lease:
    return Lease(
        client,
        KEYS,
        clock or HandClock(),
        shard_id=shard_id,
        life_s=life_s,
        info=lambda: {"pid": pid, "host": "here"},
        lost=lost,
    )


async def lapsed(client: Redis, shard_id: int) -> bool:
    """Whether the server's clock has passed the end of the stored lease."""
    seconds, micros = await client.execute("TIME")
    record = await client.execute("HGET", KEYS.leases, shard_id)
    return bool(read_lease(record)[1] <= int(seconds) * 1000 + int(micros) // 1000)


@contextlib.asynccontextmanager
async def kept(*leases: Lease) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each.keep()) for each in leases]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_workers_without_an_id_get_the_lowest_free_ones(client: Redis) -> None:
    leases = [lease(client) for _ in range(4)]
    for each in leases:
        await each.take()
    assert [each.shard_id for each in leases] == [0, 1, 2, 3]
    await leases[1].release()
    late = lease(client)
    await late.take()
    assert late.shard_id == 1


async def test_workers_that_start_at_once_get_different_ids(client: Redis) -> None:
    leases = [lease(client) for _ in range(20)]
    await asyncio.gather(*(each.take() for each in leases))
    assert sorted(each.shard_id for each in leases) == list(range(20))
    assert len({each.epoch for each in leases}) == 20


async def test_the_second_worker_with_an_id_is_refused_and_told_who_has_it(client: Redis) -> None:
    await lease(client, 3, pid=77).take()
    with pytest.raises(
        ShardTaken, match=r"shard id 3 is leased to another worker \(pid 77 on here\).*another --shard-id"
    ):
        await lease(client, 3).take()
    free = lease(client)
    await free.take()
    assert free.shard_id == 0


async def test_of_two_workers_with_one_id_exactly_one_starts(client: Redis) -> None:
    results = await asyncio.gather(*(lease(client, 3).take() for _ in range(10)), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["NoneType"] + ["ShardTaken"] * 9


async def test_when_every_id_is_leased_the_next_worker_is_told_so(client: Redis) -> None:
    held = [lease(client) for _ in range(256)]
    await asyncio.gather(*(each.take() for each in held))
    for _ in range(2):
        with pytest.raises(ShardTaken, match="all 256 shard ids are leased"):
            await lease(client).take()
    assert await client.execute("HLEN", KEYS.leases) == 256
    await next(each for each in held if each.shard_id == 255).release()
    last = lease(client)
    await last.take()
    assert last.shard_id == 255


async def test_a_lease_that_lapsed_is_free_for_another(client: Redis) -> None:
    first, second = lease(client, 3, life_s=SHORT_S), lease(client, 3)
    await first.take()
    with pytest.raises(ShardTaken):
        await second.take()
    await wait_until(lambda: lapsed(client, 3))
    await second.take()
    assert second.epoch > first.epoch


async def test_an_epoch_that_lapsed_is_never_prolonged(client: Redis) -> None:
    lost = []
    # Its own clock stands still: only Redis can tell it that it is too late.
    late = lease(client, 3, life_s=SHORT_S, lost=lambda: lost.append("lost"))
    await late.take()
    old = late.token()
    await wait_until(lambda: lapsed(client, 3))
    async with kept(late):
        await wait_until(lambda: late.epoch and late.epoch != int.from_bytes(old[2:6], "big"))
        assert lost == ["lost"]
        assert not late.allows(old)


async def test_a_lease_that_is_kept_outlives_its_life(client: Redis) -> None:
    one, other = lease(client, 3, life_s=SHORT_S), lease(client, 3)
    await one.take()
    epoch = one.epoch
    first_end = read_lease(await client.execute("HGET", KEYS.leases, 3))[1]

    async def prolonged_twice() -> bool:
        return read_lease(await client.execute("HGET", KEYS.leases, 3))[1] > first_end + SHORT_S * 2000

    async with kept(one):
        await wait_until(prolonged_twice)
        assert one.epoch == epoch
        with pytest.raises(ShardTaken):
            await other.take()


async def test_an_epoch_that_was_replaced_gives_up_and_does_not_disturb_its_successor(client: Redis) -> None:
    clock = HandClock()
    one, other = lease(client, 3, life_s=SHORT_S, clock=clock), lease(client, 3)
    await one.take()
    token = one.token()
    await wait_until(lambda: lapsed(client, 3))
    await other.take()
    # Its owner must end: a worker that only waited would keep its accounts and answer nobody.
    with pytest.raises(ShardTaken, match="shard id 3 is leased to another worker"):
        await one.keep()
    assert not one.is_held()
    assert not one.allows(token)
    await one.release()
    assert read_lease(await client.execute("HGET", KEYS.leases, 3))[0] == other.epoch


async def test_release_frees_the_id_at_once_and_only_ones_own(client: Redis) -> None:
    one, other = lease(client, 3), lease(client, 3)
    await one.take()
    await one.release()
    assert not one.is_held()
    await other.take()
    await one.release()
    assert read_lease(await client.execute("HGET", KEYS.leases, 3))[0] == other.epoch
    with pytest.raises(LeaseLost):
        one.token()


async def test_epochs_rise_also_after_the_server_forgot_everything(client: Redis) -> None:
    first, second = lease(client), lease(client)
    await first.take()
    await client.execute("FLUSHALL")
    await wait_until(lambda: later(client, first.epoch - 256))
    await second.take()
    assert second.epoch > first.epoch


async def test_a_worker_never_gets_an_epoch_it_has_had_before(client: Redis) -> None:
    one, seen = lease(client), []
    for _ in range(5):
        await one.take()
        seen.append(one.epoch)
        await one.release()
        await client.execute("FLUSHALL")
    assert seen == sorted(set(seen))


async def test_a_server_that_forgot_everything_gives_out_no_epoch_that_another_worker_has(client: Redis) -> None:
    one, other = lease(client, life_s=60), lease(client, life_s=60)
    await one.take()
    # Epochs may be far ahead of the clock: of a server whose clock was, or after many restarts in a second.
    await client.execute("SET", KEYS.epoch, one.epoch + 5000)
    await other.take()
    await one._renew()
    await client.execute("FLUSHALL")
    await one.take()
    assert one.epoch > other.epoch


async def later(client: Redis, second: int) -> bool:
    return int((await client.execute("TIME"))[0]) > second


async def test_a_worker_whose_lease_the_server_forgot_takes_a_new_one(client: Redis) -> None:
    one = lease(client, 3, life_s=SHORT_S * 2)
    await one.take()
    old = one.token()
    await client.execute("FLUSHALL")
    async with kept(one):
        await wait_until(lambda: one.is_held() and not one.allows(old))


async def test_no_two_tokens_are_equal(client: Redis) -> None:
    leases = [lease(client) for _ in range(3)]
    for each in leases:
        await each.take()
    tokens = [each.token() for each in leases for _ in range(1000)]
    assert len(set(tokens)) == 3000
    assert {len(token) for token in tokens} == {10}
    assert tokens[1000][:6] == leases[1].shard_id.to_bytes(2, "big") + leases[1].epoch.to_bytes(4, "big")


@pytest.mark.parametrize("first_act", ["allows", "token", "is_held"])
async def test_a_worker_that_was_suspended_knows_it_before_any_other_act(client: Redis, first_act: str) -> None:
    clock, lost = HandClock(), []
    one = lease(client, 3, life_s=10.0, clock=clock, lost=lambda: lost.append("lost"))
    await one.take()
    token = one.token()
    clock.advance(8.9)
    assert one.allows(token)
    # The last tenth of the lease's life is not used: Redis may count it from a little earlier.
    clock.advance(0.2)
    if first_act == "allows":
        assert not one.allows(token)
    elif first_act == "token":
        with pytest.raises(LeaseLost):
            one.token()
    else:
        assert not one.is_held()
    assert not one.allows(token)
    assert lost == ["lost"]


async def test_after_a_lapse_a_new_epoch_is_taken_and_the_old_token_stays_dead(client: Redis) -> None:
    clock = HandClock()
    one = lease(client, 3, life_s=SHORT_S, clock=clock)
    await one.take()
    old = one.token()
    clock.advance(3600)
    waiting = asyncio.ensure_future(one.held())
    async with kept(one):
        await asyncio.wait_for(waiting, 5)
    assert one.is_held()
    assert not one.allows(old)
    assert one.allows(one.token())


async def test_an_epoch_that_was_given_up_does_not_come_back_though_redis_still_keeps_it(client: Redis) -> None:
    clock = HandClock()
    one = lease(client, 3, clock=clock)
    await one.take()
    clock.advance(3600)
    assert not one.is_held()
    with pytest.raises(ShardTaken):
        await one.take()


async def test_its_life_counts_from_the_question_not_from_the_answer(redis_url: str, valkey: ValkeyProcess) -> None:
    assert redis_url
    clock = HandClock()
    async with Proxy(valkey.port) as proxy, opened(proxy.url) as slow:
        one = lease(slow, 3, life_s=10.0, clock=clock)
        await slow.execute("PING")
        proxy.stall()
        taking = asyncio.ensure_future(one.take())
        await asyncio.sleep(0)
        clock.advance(8.0)
        proxy.resume()
        await taking
        assert one.is_held()
        clock.advance(1.1)
        assert not one.is_held()


async def test_a_take_whose_reply_was_lost_is_asked_again_and_is_the_same_lease(
    redis_url: str, valkey: ValkeyProcess
) -> None:
    assert redis_url
    async with Proxy(valkey.port) as proxy, opened(proxy.url) as cut, opened(redis_url) as good:
        # The server learns the script first, so that the cut hits the call itself.
        await lease(good, 9).take()
        for shard_id in (3, None):
            one = lease(cut, shard_id)
            await cut.execute("PING")
            proxy.cut_before_reply = 1
            with pytest.raises(ReplyUnknown):
                await one.take()
            await one.take()
            assert one.shard_id == (3 if shard_id else 0)
        assert await good.execute("HLEN", KEYS.leases) == 3


async def test_the_lease_that_is_asked_for_again_begins_anew(redis_url: str, valkey: ValkeyProcess) -> None:
    assert redis_url
    async with Proxy(valkey.port) as proxy, opened(proxy.url) as cut, opened(redis_url) as good:
        await lease(good, 9).take()
        one = lease(cut, 3, life_s=LONG_S)
        await cut.execute("PING")
        proxy.cut_before_reply = 1
        with pytest.raises(ReplyUnknown):
            await one.take()
        record = await good.execute("HGET", KEYS.leases, 3)
        epoch, until, rest = record.split(b"|", 2)
        # As if the first question had been asked 50 s ago.
        await good.execute("HSET", KEYS.leases, 3, b"%s|%d|%s" % (epoch, int(until) - 50_000, rest))
        await one.take()
        # Its holder counts sixty seconds from now, so Redis must as well.
        assert read_lease(await good.execute("HGET", KEYS.leases, 3))[1] >= int(until)


async def test_while_redis_is_away_taking_says_so(new_valkey: Callable[..., ValkeyProcess]) -> None:
    server = new_valkey()
    async with opened(server.url) as client:
        server.kill()
        one = lease(client, 3)
        with pytest.raises(RedisUnavailable):
            await one.take()
        server.start()
        await one.take()
        assert one.is_held()


@pytest.mark.parametrize("value", ["", "foreign", "|", "1|x|a|{}"])
async def test_a_foreign_value_in_the_register_is_left_alone(client: Redis, value: str) -> None:
    await client.execute("HSET", KEYS.leases, "0", value)
    one = lease(client)
    await one.take()
    assert one.shard_id == 1
    with pytest.raises(ShardTaken, match=f"field 0 of the Redis hash {KEYS.leases} holds a foreign value"):
        await lease(client, 0).take()
    assert await client.execute("HGET", KEYS.leases, "0") == value.encode()


@pytest.mark.parametrize("record", [b"", b"1|2|3", b"1|2|a|[]", b"x|2|a|{}", b"\xff|1|a|{}", b"1|2|a|{"])
def test_a_foreign_record_cannot_be_read(record: bytes) -> None:
    with pytest.raises(ValueError):
        read_lease(record)


async def test_what_is_published_beside_the_lease_is_asked_at_each_renewal(client: Redis) -> None:
    pid = 1
    one = Lease(client, KEYS, HandClock(), shard_id=3, life_s=SHORT_S, info=lambda: {"pid": pid, "note": "a|b 日"})
    await one.take()
    pid = 2

    async def renewed() -> bool:
        return read_lease(await client.execute("HGET", KEYS.leases, 3))[2] == {"pid": 2, "note": "a|b 日"}

    async with kept(one):
        await wait_until(renewed)


async def test_the_register_lives_for_a_day_after_the_last_renewal(client: Redis) -> None:
    one = lease(client, 3, life_s=SHORT_S)
    await one.take()
    assert await client.execute("TTL", KEYS.leases) == 86_400
    await client.execute("EXPIRE", KEYS.leases, 100)

    async def prolonged() -> bool:
        return bool(await client.execute("TTL", KEYS.leases) > 80_000)

    async with kept(one):
        await wait_until(prolonged)


class LateRedis:
    """A server whose answer to a renewal comes when a test lets it come."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.answering = asyncio.Event()

    async def run(self, called: Script, command: Command) -> Any:
        reply = await self._redis.run(called, command)
        if called.name == "lease_renew":
            await self.answering.wait()
        return reply


async def test_a_renewal_that_is_answered_after_the_lapse_does_not_bring_the_epoch_back(client: Redis) -> None:
    clock = HandClock()
    late: Any = LateRedis(client)
    one = Lease(late, KEYS, clock, shard_id=3, life_s=3, info=lambda: {"pid": 1})
    await one.take()
    token, epoch = one.token(), one.epoch
    renewing = asyncio.ensure_future(one._renew())
    await wait_until(lambda: client.execute("EXISTS", KEYS.leases))
    clock.advance(2.8)
    assert not one.allows(token)
    late.answering.set()
    await renewing
    assert one.epoch > epoch
    assert not one.allows(token)
    assert int.from_bytes(one.token()[2:6], "big") == one.epoch


async def test_a_renewal_answered_late_counts_though_a_claim_would_be_in_doubt_by_then(proxy: Proxy) -> None:
    async with opened(proxy.url, late_ms=100, dead_after_ms=8000) as client:
        one = lease(client.control, 3)
        await one.take()
        await client.execute("PING")
        proxy.stall()
        renewing = asyncio.ensure_future(one._renew())
        with pytest.raises(ReplyUnknown):
            await client.execute("PING")
        assert not renewing.done()
        proxy.resume()
        await renewing
        assert one.is_held()


async def test_a_lease_does_not_queue_behind_what_waits_for_redis(proxy: Proxy) -> None:
    async with opened(proxy.url, late_ms=60_000, dead_after_ms=60_000) as client:
        one = lease(client.control, 3)
        await one.take()
        busy = [asyncio.ensure_future(client.execute("BLPOP", f"never-{number}", 0)) for number in range(400)]
        await asyncio.sleep(0)
        await asyncio.wait_for(one._renew(), 30)
        assert not any(each.done() for each in busy)
        for each in busy:
            each.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

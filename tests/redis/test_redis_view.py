"""The deployment as Redis shows it: states by facts, books bucket by bucket, nothing broken by foreign values."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pallas.claim import Verdict
from pallas.clock import SystemClock
from pallas.keys import BUCKETS, encode
from pallas.model import Outcome, Reason
from pallas.onebot.ends import End
from pallas.redis import Redis
from shard.fleet import Fleet
from shard.redis_view import RedisView
from shard.registry import Lease
from shard.roster import Account
from shard.view import BotReason, BotRow, BotState, ShardState
from tests.support.claimants import KEYS, claimants
from tests.support.opened import HandClock, opened
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

SHORT_S = 0.2


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with opened(redis_url) as opening:
        yield opening


def view_of(client: Redis) -> RedisView:
    return RedisView(client, KEYS, SystemClock(), name="test", purge_s=120.0)


async def live_epoch(client: Redis, shard_id: int = 0, life_s: float = 60.0) -> int:
    info = {"pid": 7, "host": "here", "listen": "127.0.0.1", "base_port": 8090, "app": "my-bot", "version": "1"}
    lease = Lease(client, KEYS, HandClock(), shard_id=shard_id, life_s=life_s, info=lambda: info)
    await lease.take()
    return lease.epoch


async def present(client: Redis, bot_id: str, epoch: int, *, seen_ago_s: float = 1.0, **record: Any) -> None:
    seconds, _ = await client.execute("TIME")
    seen = int((int(seconds) - seen_ago_s) * 1000)
    value = f"{epoch}|100000|{seen}|{json.dumps({'qq': bot_id, 'shard_id': 0, **record})}"
    await client.execute("HSET", KEYS.presence, bot_id, value)
    await client.execute("EXPIRE", KEYS.presence, 60)


async def bot(client: Redis, bot_id: str) -> BotRow:
    return next(row for row in await view_of(client).bots() if row.self_id == bot_id)


@pytest.mark.parametrize(
    ("about", "state", "reason"),
    [
        ({}, BotState.ONLINE, BotReason.CONNECTED),
        ({"online": True}, BotState.ONLINE, BotReason.CONNECTED),
        ({"online": None}, BotState.ONLINE, BotReason.CONNECTED),
        ({"online": False}, BotState.OFFLINE, BotReason.END_SAYS_OFFLINE),
        ({"seen_ago_s": 130.0}, BotState.UNKNOWN, BotReason.PRESENCE_STALE),
        ({"online": False, "seen_ago_s": 130.0}, BotState.UNKNOWN, BotReason.PRESENCE_STALE),
    ],
)
async def test_an_accounts_state_follows_from_its_facts(
    client: Redis, about: dict[str, Any], state: BotState, reason: BotReason
) -> None:
    await present(client, "1", await live_epoch(client), **about)
    row = await bot(client, "1")
    assert (row.state, row.reason) == (state, reason)


async def test_an_account_whose_worker_is_gone_is_unknown_not_offline(client: Redis) -> None:
    epoch = await live_epoch(client, life_s=SHORT_S)
    await present(client, "1", epoch)
    assert (await bot(client, "1")).state is BotState.ONLINE

    async def unknown() -> bool:
        return (await bot(client, "1")).reason is BotReason.SHARD_LAPSED

    await wait_until(unknown)
    assert (await bot(client, "1")).state is BotState.UNKNOWN


async def test_an_entry_of_an_epoch_that_was_replaced_is_unknown(client: Redis) -> None:
    await present(client, "1", await live_epoch(client) - 1)
    assert (await bot(client, "1")).reason is BotReason.SHARD_LAPSED


async def test_an_account_that_left_stays_listed_as_offline(client: Redis) -> None:
    fleet = Fleet(client, KEYS, HandClock(), ["5"])
    account = Account("1")
    account.nickname, account.end = "牛牛", End.LAGRANGE
    await fleet.announce([account])
    row = await bot(client, "1")
    assert (row.state, row.reason, row.nickname, row.end) == (
        BotState.OFFLINE,
        BotReason.LINK_CLOSED,
        "牛牛",
        "lagrange",
    )
    await present(client, "1", await live_epoch(client))
    assert [row.self_id for row in await view_of(client).bots()] == ["1"], "once, not twice"


async def test_accounts_stand_in_the_order_of_their_numbers(client: Redis) -> None:
    epoch = await live_epoch(client)
    for bot_id in ("100", "9", "20"):
        await present(client, bot_id, epoch)
    assert [row.self_id for row in await view_of(client).bots()] == ["9", "20", "100"]


async def test_what_an_account_reported_is_shown(client: Redis) -> None:
    epoch = await live_epoch(client)
    await present(
        client,
        "1",
        epoch,
        nickname="n",
        end="napcat",
        end_version="4.8",
        links=2,
        connection_key="0:1:2",
        last_event_at=5.5,
    )
    row = await bot(client, "1")
    assert (row.nickname, row.end, row.end_version, row.links, row.shard_id) == ("n", "napcat", "4.8", 2, "0")
    assert (row.connection_key, row.last_event_at, row.last_sent_at, row.connected_at) == ("0:1:2", 5.5, None, 100.0)


async def test_workers_are_listed_live_and_lapsed(client: Redis) -> None:
    live = await live_epoch(client, 2)
    await live_epoch(client, 0, life_s=SHORT_S)
    report = {"epoch": live, "books": {"arrived": 3, "distinct": 3}, "links": 4, "loop_lag_ms": 0.5}
    await client.execute("SET", KEYS.worker(2), json.dumps(report), "EX", 60)

    async def states() -> list[tuple[str, ShardState]]:
        return [(row.shard_id, row.state) for row in await view_of(client).shards()]

    async def has_lapsed() -> bool:
        return await states() == [("0", ShardState.LAPSED), ("2", ShardState.LIVE)]

    await wait_until(has_lapsed)
    lapsed, row = await view_of(client).shards()
    assert (row.epoch, row.pid, row.host, row.address, row.app) == (live, 7, "here", "127.0.0.1:8092", "my-bot")
    assert (row.links, row.counters.arrived, row.loop_lag_ms) == (4, 3, 0.5)
    assert row.lease_left_s > 50
    assert (lapsed.links, lapsed.lease_left_s < 0) == (0, True)


async def test_counters_of_a_former_process_are_not_shown_as_the_present_ones(client: Redis) -> None:
    epoch = await live_epoch(client, 2)
    await client.execute("SET", KEYS.worker(2), json.dumps({"epoch": epoch - 1, "books": {"arrived": 9}}), "EX", 60)
    (row,) = await view_of(client).shards()
    assert row.counters.arrived == 0
    assert (await view_of(client).books()).workers == ()


async def test_a_worker_that_lapsed_more_than_an_hour_ago_is_no_longer_listed(client: Redis) -> None:
    seconds, _ = await client.execute("TIME")
    for shard, ago in ((0, 3500), (1, 3700)):
        await client.execute("HSET", KEYS.leases, shard, f"5|{(int(seconds) - ago) * 1000}|a|{{}}")
    await client.execute("EXPIRE", KEYS.leases, 60)
    assert [row.shard_id for row in await view_of(client).shards()] == ["0"]


async def test_the_books_add_up_over_every_bucket(redis_url: str) -> None:
    async with claimants(redis_url, 2) as (one, other):
        spaces = [encode(str(number)) for number in range(300)]
        assert {KEYS.bucket(space).number for space in spaces} == set(range(BUCKETS))
        for space in spaces:
            claim = one.claim(5, space=space)
            assert await one.take(claim) is Verdict.WON
            assert await other.report(5, space=space) is Verdict.LOST
            if space != spaces[0]:
                one.claims.end(claim, *_end(int(space)))
        await one.settled()
        books = await view_of(one.redis).books()
    assert books.ended.distinct == 300
    assert books.ended.open == 1
    assert books.ended.handled == 149
    assert books.ended.dropped == {"handler_error": 75}
    assert books.ended.dead == {"sent_unknown": 75}
    assert books.ended.difference == 0
    assert books.unaccounted == 1, "the one that is open belongs to an epoch that is not alive"


def _end(number: int) -> tuple[Outcome, Reason]:
    ends = [(Outcome.HANDLED, Reason.OK), (Outcome.DROPPED, Reason.HANDLER_ERROR)] * 2
    ends[3] = (Outcome.DEAD, Reason.SENT_UNKNOWN)
    return ends[number % 4]


async def test_what_a_live_worker_has_open_is_not_unaccounted(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        one.epoch.epoch = await live_epoch(one.redis, 0)
        await one.report(5)
        books = await view_of(one.redis).books()
    assert (books.ended.open, books.unaccounted, books.balanced) == (1, 0, True)


async def test_a_book_that_does_not_balance_says_by_how_much(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        await one.report(5)
        bucket = KEYS.bucket(encode("100200300"))
        await one.redis.execute("HINCRBY", bucket.books, "distinct", 2)
        books = await view_of(one.redis).books()
    assert (books.difference, books.balanced) == (2, False)


@pytest.mark.parametrize("value", ["", "foreign", "[]", "null", '"text"'])
async def test_foreign_values_break_no_page(client: Redis, value: str) -> None:
    epoch = await live_epoch(client, 1)
    await present(client, "1", epoch)
    await client.execute("HSET", KEYS.presence, "2", value)
    await client.execute("HSET", KEYS.leases, "9", value)
    await client.execute("HSET", KEYS.leases, "10", f"1|99999999999999|a|{value}")
    await client.execute("HSET", KEYS.fleet, "3", value)
    await client.execute("EXPIRE", KEYS.fleet, 60)
    await client.execute("SET", KEYS.worker(1), value, "EX", 60)
    view = view_of(client)
    assert [row.self_id for row in await view.bots()] == ["1", "3"]
    assert [row.shard_id for row in await view.shards()] == ["1"]
    assert (await view.books()).balanced


async def test_readiness_is_a_write_that_went_through(client: Redis) -> None:
    readiness = await view_of(client).ready()
    assert readiness.ready
    assert readiness.round_trip_ms is not None
    assert await client.execute("TTL", KEYS.ready("test")) == 60


async def test_a_server_that_answers_ping_but_takes_no_writes_is_not_ready(
    new_valkey: Callable[..., ValkeyProcess],
) -> None:
    primary = new_valkey()
    replica = new_valkey("--replicaof", "127.0.0.1", str(primary.port))
    async with opened(replica.url) as client:
        assert await client.execute("PING") == b"PONG"
        readiness = await view_of(client).ready()
    assert (readiness.ready, readiness.reason) == (False, "redis_unavailable")


async def test_who_was_idle_is_ready_again_as_soon_as_the_server_is(new_valkey: Callable[..., ValkeyProcess]) -> None:
    server = new_valkey()
    async with opened(server.url) as client:
        view = view_of(client)
        for _ in range(3):
            assert (await view.ready()).ready
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        assert (await view.ready()).ready


async def test_the_fleet_is_what_is_configured_connected_here_or_announced_elsewhere(client: Redis) -> None:
    here, there = (Fleet(client, KEYS, HandClock(), configured) for configured in (["5"], []))
    here.add("6")
    await there.announce([Account("7"), Account("8")])
    await there.announce([])
    assert "7" not in here
    await here.refresh()
    assert [user for user in ("4", "5", "6", "7", "8") if user in here] == ["5", "6", "7", "8"]
    assert len(here) == 4
    assert await client.execute("TTL", KEYS.fleet) == 90 * 86_400

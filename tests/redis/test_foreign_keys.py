"""A foreign value under each key of ours: it is named and left alone, and everything that does not need it goes on."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from pallas import keys as names
from pallas.clock import SystemClock
from pallas.errors import RedisError, ReplyError
from pallas.keys import Keys, encode
from pallas.redis import Redis
from shard.terms import TermsBook
from tests.support.load import QUICK, bot
from tests.support.opened import opened
from tests.support.shards import Shard, group_message, shards
from tests.support.waiting import wait_until

pytestmark = pytest.mark.leaves_keys

KEYS = Keys("pallas")
HERE, ELSEWHERE = 7001, 7002
BUCKET = KEYS.bucket(encode(str(HERE)))
SEQ = 5
CONTENTS = "{p}:{bb}:t:<space>:<hour>"
OF_A_GROUP = {
    "{p}:{bb}:q:<space>:<seq/64>": BUCKET.block(SEQ),
    CONTENTS: "",
    "{p}:{bb}:plain-until": BUCKET.plain,
    "{p}:{bb}:open": BUCKET.open,
    "{p}:{bb}:books": BUCKET.books,
}
BESIDE = {
    "{p}:presence:bots": KEYS.presence,
    "{p}:presence:fleet": KEYS.fleet,
    "{p}:presence:terms": KEYS.terms,
    "{p}:worker:<shard>": KEYS.worker(0),
    "{p}:ready:<name>": KEYS.ready("worker-0"),
    "{p}:{bb}:dead": BUCKET.dead,
}
OF_THE_LEASE = {
    "{p}:deployment": KEYS.deployment,
    "{p}:{ctl}:epoch": KEYS.epoch,
    "{p}:{ctl}:leases": KEYS.leases,
}


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


@pytest.fixture
async def admin(redis_url: str) -> AsyncIterator[Redis]:
    async with opened(redis_url) as client:
        yield client
        await client.execute("FLUSHALL")


async def spoil(admin: Redis, key: str) -> None:
    """A list of somebody else's, under our name: no key of ours is one."""
    await admin.execute("RPUSH", key, "theirs")


async def assert_untouched(admin: Redis, key: str) -> None:
    assert await admin.execute("LRANGE", key, 0, -1) == [b"theirs"]


def told(lines: list[Any], key: str) -> bool:
    return any(key in str(line.get(name, "")) for line in lines for name in ("error", "key", "detail"))


def ask(shard: Shard, number: int, group: int, *, plain: bool = False, at: float | None = None) -> None:
    seq = None if plain else SEQ
    shard.hear(group_message("10001", f"ping {number}", seq=seq, at=at, group_id=group))


def test_every_key_is_tried() -> None:
    table = re.findall(r"^\| `([^`]+)` \|", names.__doc__ or "", re.MULTILINE)
    assert {*OF_A_GROUP, *BESIDE, *OF_THE_LEASE} == set(table)


@pytest.mark.row("F24")
@pytest.mark.parametrize("name", OF_A_GROUP)
async def test_messages_of_its_groups_wait_and_all_others_are_answered(
    redis_url: str, admin: Redis, tmp_path: Path, lines: list[Any], name: str
) -> None:
    now = time.time()
    key = OF_A_GROUP[name] or BUCKET.hour(int(now))
    await spoil(admin, key)
    async with shards(redis_url, tmp_path, bot(), **QUICK) as (shard,):
        ask(shard, 1, HERE, plain=name == CONTENTS, at=now)
        await wait_until(lambda: told(lines, key), saying="the foreign key is named")
        ask(shard, 2, ELSEWHERE)
        await wait_until(lambda: shard.sent() == ["pong 2"])
        await assert_untouched(admin, key)
        assert shard.meters.pending == 1
        await admin.execute("DEL", key)
        await wait_until(lambda: shard.sent() == ["pong 2", "pong 1"], saying="what waited goes on by itself")
        await shard.quiet()
        ended = await shard.ended()
        assert (ended.distinct, ended.handled, ended.open) == (2, 2, 0)


@pytest.mark.row("F24")
@pytest.mark.parametrize("key", BESIDE.values(), ids=BESIDE)
async def test_what_stands_beside_the_messages_stops_none(
    redis_url: str, admin: Redis, tmp_path: Path, lines: list[Any], key: str
) -> None:
    await spoil(admin, key)
    async with shards(redis_url, tmp_path, bot(), **QUICK) as (shard,):
        worker = shard.worker
        ask(shard, 1, HERE)
        await shard.quiet()
        assert shard.sent() == ["pong 1"]
        terms = TermsBook(worker._redis, worker.keys, SystemClock(), worker.roster)
        presence = worker.presence
        for beat in (worker._know_fleet, presence.refresh, presence.purge, worker.pulse.publish, terms.beat):
            try:
                await beat()
            except ReplyError as error:
                lines.append({"error": str(error)})
        ready = await worker._probes()._view.ready()
        assert ready.ready == (key != KEYS.ready("worker-0"))
        if key not in {BUCKET.dead, KEYS.ready("worker-0")}:
            assert told(lines, key)
        if key != KEYS.presence:
            assert await admin.execute("HEXISTS", KEYS.presence, "10001") == 1
        await assert_untouched(admin, key)


@pytest.mark.row("F24")
@pytest.mark.parametrize("key", OF_THE_LEASE.values(), ids=OF_THE_LEASE)
async def test_no_lease_is_taken_until_it_is_gone(redis_url: str, admin: Redis, tmp_path: Path, key: str) -> None:
    async with shards(redis_url, tmp_path, bot(), **QUICK) as (shard,):
        lease = shard.worker.lease
        await lease.release()
        await admin.execute("FLUSHALL")
        await spoil(admin, key)
        ask(shard, 1, HERE)
        with pytest.raises(RedisError, match=re.escape(key)):
            await lease.take()
        await assert_untouched(admin, key)
        assert shard.sent() == []
        await admin.execute("DEL", key)
        await lease.take()
        await wait_until(lambda: shard.sent() == ["pong 1"])
        await shard.quiet()


@pytest.mark.parametrize("value", ["foreign", "not nineteen bytes, nor a multiple"])
async def test_a_foreign_field_of_a_block_is_left_alone(
    redis_url: str, admin: Redis, tmp_path: Path, lines: list[Any], value: str
) -> None:
    await admin.execute("HSET", BUCKET.block(SEQ), SEQ, value)
    async with shards(redis_url, tmp_path, bot(), bot(), **QUICK) as (one, other):
        for shard in (one, other):
            ask(shard, 1, HERE)
            shard.hear(group_message("10001", "ping 2", seq=SEQ + 1, group_id=HERE))
        await wait_until(lambda: told(lines, BUCKET.block(SEQ)))
        await wait_until(lambda: [*one.sent(), *other.sent()] == ["pong 2"], saying="its neighbours are answered")
        assert await admin.execute("HGET", BUCKET.block(SEQ), SEQ) == value.encode()
        await admin.execute("HDEL", BUCKET.block(SEQ), SEQ)
        await asyncio.gather(one.quiet(), other.quiet())
        assert sorted([*one.sent(), *other.sent()]) == ["pong 1", "pong 2"]


async def test_a_foreign_number_of_the_last_epoch_is_left_alone(redis_url: str, admin: Redis, tmp_path: Path) -> None:
    async with shards(redis_url, tmp_path, bot(), **QUICK) as (shard,):
        await shard.worker.lease.release()
        await admin.execute("SET", KEYS.epoch, "theirs")
        with pytest.raises(ReplyError, match=re.escape(KEYS.epoch)):
            await shard.worker.lease.take()
        assert await admin.execute("GET", KEYS.epoch) == b"theirs"
        await admin.execute("DEL", KEYS.epoch)
        await shard.worker.lease.take()

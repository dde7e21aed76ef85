"""Presence: who is connected where, whatever order connects, refreshes and late closes come in."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator

import pytest
from structlog.testing import capture_logs

from pallas.errors import RedisError
from pallas.keys import Keys
from pallas.onebot.ends import End
from pallas.onebot.link import Link, Role
from pallas.redis import Redis, script
from shard.presence import PresenceBook, read_presence
from shard.registry import Lease
from shard.roster import Account, Roster
from tests.support.opened import HandClock, opened
from tests.support.proxy import Proxy
from tests.support.valkey import ValkeyProcess

KEYS = Keys("test")
PURGE_S = 120.0
BOT = "10001"


class Quiet:
    """A socket that takes everything."""

    async def write(self, frame: bytes) -> None:
        pass

    async def close(self, code: int, reason: str) -> None:
        pass


class Worker:
    """One worker's accounts and what it writes of them."""

    def __init__(self, client: Redis, *, purge_s: float = PURGE_S) -> None:
        self.lease = Lease(client, KEYS, HandClock(), shard_id=None, life_s=60, info=dict)
        self.roster = Roster()
        self.book = PresenceBook(client, KEYS, self.lease, self.roster, purge_s=purge_s)
        self._links: dict[str, list[Link]] = {}

    async def connect(self, at: float, bot_id: str = BOT) -> Account:
        links = self._links.setdefault(bot_id, [])
        link = Link(
            Quiet(),
            len(links) + 1,
            bot_id=bot_id,
            role=Role.UNIVERSAL,
            end=End.NAPCAT,
            version="4.8",
            user_agent="",
            peer="127.0.0.1",
            opened_at=at,
        )
        links.append(link)
        account = self.roster.join(link, at)
        await self.book.put(account)
        return account

    async def close(self, bot_id: str = BOT) -> None:
        """The oldest link closes; only the last one ends the account."""
        if self.roster.leave(self._links[bot_id].pop(0)):
            await self.book.drop(bot_id)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with opened(redis_url) as opening:
        yield opening


@pytest.fixture
async def pair(client: Redis) -> tuple[Worker, Worker]:
    one, other = Worker(client), Worker(client)
    await one.lease.take()
    await other.lease.take()
    return one, other


@pytest.fixture
async def proxy(redis_url: str, valkey: ValkeyProcess) -> AsyncIterator[Proxy]:
    assert redis_url
    async with Proxy(valkey.port) as opening:
        yield opening


async def holder(client: Redis, bot_id: str = BOT) -> int | None:
    found = {entry.bot_id: entry.epoch for entry in await read_presence(client, KEYS)}
    return found.get(bot_id)


async def aged(client: Redis, bot_id: str, seconds: int) -> None:
    """As if an entry had been refreshed that long ago."""
    epoch, connected, seen, record = (await client.execute("HGET", KEYS.presence, bot_id)).split(b"|", 3)
    value = b"|".join((epoch, connected, b"%d" % (int(seen) - seconds * 1000), record))
    await client.execute("HSET", KEYS.presence, bot_id, value)


async def test_a_connected_account_is_written_with_every_field(client: Redis, pair: tuple[Worker, Worker]) -> None:
    one, _ = pair
    account = await one.connect(100.5)
    account.nickname = "牛牛|1"
    await one.book.put(account)
    (entry,) = await read_presence(client, KEYS)
    assert (entry.bot_id, entry.epoch, entry.connected_at) == (BOT, one.lease.epoch, 100.5)
    assert entry.seen_at > 1_700_000_000, "seen is the server's time, whatever a worker's clock says"
    assert entry.record["qq"] == BOT
    assert entry.record["shard_id"] == 0
    assert entry.record["nickname"] == "牛牛|1"
    assert entry.record["connection_key"] == f"0:{one.lease.epoch}:1"
    assert entry.record["adapter"] == "onebot.v11"
    assert entry.record["links"] == 1


async def test_the_last_close_removes_it(client: Redis, pair: tuple[Worker, Worker]) -> None:
    one, _ = pair
    await one.connect(100)
    await one.connect(101)
    await one.close()
    assert await holder(client) == one.lease.epoch
    await one.close()
    assert await holder(client) is None


async def test_a_late_close_at_the_old_worker_leaves_the_new_one_alone(
    client: Redis, pair: tuple[Worker, Worker]
) -> None:
    one, other = pair
    await one.connect(100)
    await other.connect(200)
    await one.close()
    assert await holder(client) == other.lease.epoch


async def test_the_worker_with_the_newer_connection_is_shown(client: Redis, pair: tuple[Worker, Worker]) -> None:
    one, other = pair
    await other.connect(200)
    with capture_logs() as logs:
        await one.connect(100)
    assert [line["event"] for line in logs] == ["presence.newer_elsewhere"]
    assert await holder(client) == other.lease.epoch
    await one.book.refresh()
    assert await holder(client) == other.lease.epoch


async def test_a_newer_connection_that_is_dead_does_not_stand_in_the_way(
    client: Redis, pair: tuple[Worker, Worker]
) -> None:
    one, other = pair
    await other.connect(200)
    await aged(client, BOT, 121)
    await one.connect(100)
    assert await holder(client) == one.lease.epoch


async def test_a_worker_with_a_new_epoch_takes_its_own_entries_over(client: Redis, pair: tuple[Worker, Worker]) -> None:
    one, _ = pair
    await one.connect(100)
    old = one.lease.epoch
    await one.lease.release()
    await one.book.refresh()
    assert await holder(client) == old, "without a lease nothing is written"
    await one.lease.take()
    await one.book.refresh()
    assert await holder(client) == one.lease.epoch != old
    await one.close()
    assert await holder(client) is None


async def test_a_hash_that_was_lost_is_whole_after_one_refresh(client: Redis, pair: tuple[Worker, Worker]) -> None:
    one, _ = pair
    for number in range(30):
        await one.connect(100, str(number + 1))
    await client.execute("DEL", KEYS.presence)
    await one.book.refresh()
    assert len(await read_presence(client, KEYS)) == 30
    assert await client.execute("TTL", KEYS.presence) == 86_400


async def test_what_nobody_refreshed_is_purged_by_anybody_and_nothing_else(
    client: Redis, pair: tuple[Worker, Worker]
) -> None:
    one, other = pair
    for bot_id in ("1", "2", "3"):
        await one.connect(100, bot_id)
    await aged(client, "1", 119)
    await aged(client, "2", 122)
    with capture_logs() as logs:
        await other.book.purge()
    assert [entry.bot_id for entry in sorted(await read_presence(client, KEYS), key=lambda entry: entry.bot_id)] == [
        "1",
        "3",
    ]
    assert [(line["event"], line["bot_id"]) for line in logs] == [("presence.purged", "2")]


async def test_an_entry_refreshed_between_look_and_purge_stays(client: Redis, pair: tuple[Worker, Worker]) -> None:
    one, other = pair
    await one.connect(100)
    await aged(client, BOT, 200)
    drop = script("presence_drop")
    # The other worker has seen an old entry; before it removes it, the owner refreshes.
    await one.book.refresh()
    call = drop.named(presence=KEYS.presence, account=BOT, epoch="", purge_ms=int(PURGE_S * 1000))
    assert await client.run(drop, call) == 0
    assert await holder(client) == one.lease.epoch
    assert other.lease.epoch


async def test_leaving_clears_its_own_entries_only(client: Redis, pair: tuple[Worker, Worker]) -> None:
    one, other = pair
    for bot_id in ("1", "2"):
        await one.connect(100, bot_id)
    await other.connect(200, "2")
    await other.connect(200, "3")
    await one.book.clear(["1", "2", "3", "4"])
    assert {entry.bot_id for entry in await read_presence(client, KEYS)} == {"2", "3"}


@pytest.mark.parametrize("value", ["1|2|3|[]", "1|2|3|{"])
async def test_a_broken_entry_of_an_epoch_long_gone_is_left_out_and_replaced(
    client: Redis, pair: tuple[Worker, Worker], value: str
) -> None:
    one, _ = pair
    await client.execute("HSET", KEYS.presence, BOT, value)
    await client.execute("EXPIRE", KEYS.presence, 60)
    with capture_logs() as logs:
        assert await read_presence(client, KEYS) == []
    assert [line["event"] for line in logs] == ["presence.foreign_value"]
    await one.connect(100)
    assert await holder(client) == one.lease.epoch


@pytest.mark.parametrize("value", ["", "foreign", "x|2|3|{}", b"\xff|1|1|{}"])
async def test_a_foreign_value_is_told_by_name_and_left_alone(
    client: Redis, pair: tuple[Worker, Worker], value: str | bytes
) -> None:
    one, other = pair
    await client.execute("HSET", KEYS.presence, BOT, value)
    await client.execute("EXPIRE", KEYS.presence, 60)
    await other.connect(1, "2")
    with capture_logs() as logs:
        assert [entry.bot_id for entry in await read_presence(client, KEYS)] == ["2"]
    assert [(line["event"], line["bot_id"]) for line in logs] == [("presence.foreign_value", BOT)]
    await one.book.purge()
    with capture_logs() as logs:
        await one.connect(100)
        await one.connect(100, "3")
        await one.book.refresh()
        await one.close()
    assert [(line["event"], line["bot_id"]) for line in logs] == [("presence.foreign_value", BOT)], (
        "once, not each beat"
    )
    stored = await client.execute("HGET", KEYS.presence, BOT)
    assert stored == (value if isinstance(value, bytes) else value.encode())
    assert await holder(client, "3") == one.lease.epoch, "the other accounts are written all the same"


async def test_the_record_is_json_that_others_can_read(client: Redis, pair: tuple[Worker, Worker]) -> None:
    one, _ = pair
    account = await one.connect(100)
    account.nickname = '"\\\n日本 \U0001f404' * 100
    await one.book.put(account)
    record = json.loads((await client.execute("HGET", KEYS.presence, BOT)).split(b"|", 3)[3])
    assert record["nickname"] == account.nickname[:200]


def orders() -> Iterator[list[str]]:
    """Random interleavings of what happens at two workers, each worker's own happenings in their order.

    Each worker has up to two links; its old one may close long after a newer one was opened, here or there.
    """
    rng = random.Random(3)
    for _ in range(1000):
        left = {
            name: [
                *rng.choice((["open"], ["open", "open"])),
                *rng.choices(["refresh", "forgotten"], k=rng.randrange(3)),
            ]
            + ["close"] * rng.randrange(3)
            for name in ("one", "other")
        }
        order = []
        while any(left.values()):
            name = rng.choice([name for name, acts in left.items() if acts])
            order.append(f"{name}.{left[name].pop(0)}")
        yield order


async def test_in_every_order_the_worker_with_the_newest_open_link_is_the_one_that_is_shown(
    client: Redis, pair: tuple[Worker, Worker]
) -> None:
    workers = dict(zip(("one", "other"), pair, strict=True))
    for run, order in enumerate(orders()):
        bot_id = f"{run + 1}"
        links: list[tuple[int, str]] = []
        for at, act in enumerate(order):
            name, _, verb = act.partition(".")
            worker = workers[name]
            if verb == "open":
                await worker.connect(100.0 + at, bot_id)
                links.append((at, name))
            elif verb == "close":
                if any(where == name for _, where in links):
                    # The oldest of its links, as happens where an end comes back before its old socket is given up.
                    links.remove(next(link for link in links if link[1] == name))
                    await worker.close(bot_id)
            elif verb == "forgotten":
                await client.execute("HDEL", KEYS.presence, bot_id)
            elif bot_id in worker.roster:
                await worker.book.refresh()
        for _ in range(2):
            await asyncio.gather(*(worker.book.refresh() for worker in pair))
        newest = workers[max(links)[1]].lease.epoch if links else None
        assert await holder(client, bot_id) == newest, order
        for worker in pair:
            while bot_id in worker.roster:
                await worker.close(bot_id)
        assert await holder(client, bot_id) is None, order


async def test_two_workers_that_both_have_it_do_not_take_it_from_each_other(
    client: Redis, pair: tuple[Worker, Worker]
) -> None:
    one, other = pair
    await one.connect(100)
    await other.connect(101)
    with capture_logs() as logs:
        for _ in range(5):
            await one.book.refresh()
            assert await holder(client) == other.lease.epoch
            await other.book.refresh()
            assert await holder(client) == other.lease.epoch
    assert [line["event"] for line in logs] == ["presence.newer_elsewhere"], "told once, not at each beat"


async def test_a_removal_that_redis_did_not_take_is_made_up_for(proxy: Proxy, client: Redis) -> None:
    async with opened(proxy.url, late_ms=500) as far:
        worker = Worker(far)
        await worker.lease.take()
        await worker.connect(100)
        await worker.connect(100, "2")
        proxy.cut_before_request = 1
        with pytest.raises(RedisError):
            await worker.close()
        assert await holder(client) == worker.lease.epoch
        await worker.book.refresh()
        assert await holder(client) is None
        assert await holder(client, "2") == worker.lease.epoch


@pytest.mark.parametrize("acts", [("close", "connect"), ("connect", "close")])
async def test_a_script_sent_anew_does_not_overtake_what_came_after_it(
    client: Redis, pair: tuple[Worker, Worker], acts: tuple[str, str]
) -> None:
    one, _ = pair
    if acts[0] == "close":
        await one.connect(100)
    await client.execute("SCRIPT", "FLUSH")
    # One of the two calls is known to the server, the other is not and is sent a second time.
    known = script("presence_put" if acts[0] == "close" else "presence_drop")
    await client.execute("SCRIPT", "LOAD", known.source)
    await asyncio.gather(*(one.connect(101) if act == "connect" else one.close() for act in acts))
    assert await holder(client) == (one.lease.epoch if acts[1] == "connect" else None)

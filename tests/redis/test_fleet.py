"""The register of all accounts that ever connected: it forgets them one by one, and never one that is still there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from pallas.keys import FLEET_TTL_S, Keys
from pallas.redis import Redis, script
from shard.fleet import Fleet
from shard.roster import Account
from tests.support.opened import HandClock, opened

KEYS = Keys("test")


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with opened(redis_url) as opening:
        yield opening


async def server_s(client: Redis) -> int:
    return int((await client.execute("TIME"))[0])


async def put(client: Redis, bot_id: str, value: str) -> None:
    await client.execute("HSET", KEYS.fleet, bot_id, value)
    await client.execute("EXPIRE", KEYS.fleet, 60)


async def test_who_was_not_seen_for_ninety_days_is_forgotten_though_others_are_announced(client: Redis) -> None:
    now = await server_s(client)
    await put(client, "1", json.dumps({"seen": now - FLEET_TTL_S - 5}))
    await put(client, "2", json.dumps({"seen": now - FLEET_TTL_S + 60}))
    clock = HandClock(now)
    fleet = Fleet(client, KEYS, clock, [])
    await fleet.announce([Account("3")])
    await fleet.refresh()
    assert await client.execute("HKEYS", KEYS.fleet) == [b"2", b"3"]
    assert "1" not in await known_anew(client, clock)


async def test_what_the_register_forgot_its_workers_forget_with_their_next_look(client: Redis) -> None:
    now = await server_s(client)
    clock = HandClock(now)
    fleet = Fleet(client, KEYS, clock, ["9"])
    await put(client, "1", json.dumps({"seen": now - FLEET_TTL_S + 60}))
    await fleet.refresh()
    # Another worker looked first.
    await client.execute("DEL", KEYS.fleet)
    await put(client, "2", json.dumps({"seen": now - FLEET_TTL_S - 5}))
    fleet.add("3")
    for _ in range(2):
        clock.advance(3600)
        await fleet.refresh()
        assert "1" in fleet, "its time is not over"
    assert "2" not in fleet
    assert await client.execute("EXISTS", KEYS.fleet) == 0
    await put(client, "1", json.dumps({"seen": now - FLEET_TTL_S - 1}))
    for _ in range(2):
        clock.advance(3600)
        await fleet.refresh()
    assert [one in fleet for one in ("1", "2", "3", "9")] == [False, False, True, True]
    assert len(fleet) == 2, "the one that connected here, and the configured one"


async def test_who_was_lost_with_redis_is_still_ours(client: Redis) -> None:
    clock = HandClock(await server_s(client))
    fleet = Fleet(client, KEYS, clock, [])
    await put(client, "1", json.dumps({"seen": clock.wall_s() - 86_400}))
    await put(client, "2", "unreadable")
    await fleet.refresh()
    await client.execute("DEL", KEYS.fleet)
    for _ in range(3):
        clock.advance(3600)
        await fleet.refresh()
    assert "1" in fleet
    assert "2" in fleet


async def test_an_account_that_is_connected_is_never_forgotten_however_wrong_its_workers_clock(client: Redis) -> None:
    clock = HandClock(await server_s(client) - FLEET_TTL_S - 86_400)
    fleet = Fleet(client, KEYS, clock, [])
    fleet.add("1")
    for _ in range(3):
        await fleet.announce([Account("1")])
        await fleet.refresh()
        assert "1" in fleet
        clock.advance(3600)


async def known_anew(client: Redis, clock: HandClock) -> Fleet:
    fleet = Fleet(client, KEYS, clock, [])
    await fleet.refresh()
    return fleet


async def test_what_cannot_be_read_is_left_alone(client: Redis) -> None:
    values = ["", "theirs", "[]", "{}", '{"seen":"long ago"}', '{"seen":null}']
    for number, value in enumerate(values):
        await put(client, str(number), value)
    await client.execute("HSET", KEYS.fleet, b"\xff", "{}")
    await known_anew(client, HandClock())
    assert await client.execute("HLEN", KEYS.fleet) == len(values) + 1


async def test_an_account_that_comes_back_at_that_moment_stays(client: Redis) -> None:
    old = json.dumps({"seen": 1})
    await put(client, "1", old)
    await Fleet(client, KEYS, HandClock(await server_s(client)), []).announce([Account("1")])
    forget = script("fleet_forget")
    assert await client.run(forget, forget.named(fleet=KEYS.fleet, account="1", value=old)) == 0
    assert await client.execute("HEXISTS", KEYS.fleet, "1") == 1


async def test_the_register_is_looked_through_once_an_hour(client: Redis) -> None:
    clock = HandClock()
    fleet = Fleet(client, KEYS, clock, [])
    await fleet.refresh()
    await put(client, "1", '{"seen":1}')
    await fleet.refresh()
    assert await client.execute("HEXISTS", KEYS.fleet, "1") == 1
    clock.advance(3600)
    await fleet.refresh()
    assert await client.execute("HEXISTS", KEYS.fleet, "1") == 0

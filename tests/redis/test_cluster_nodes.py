"""What only a cluster can do to a command: slots that move, nodes that die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from pallas.claim import Verdict
from pallas.errors import RedisUnavailable, ReplyUnknown
from pallas.keys import encode
from pallas.model import Outcome, Reason
from pallas.redis.cluster import key_slot
from tests.support.claimants import KEYS, Claimant, claimants
from tests.support.opened import opened
from tests.support.topology import Cluster, cluster, give, node_id
from tests.support.waiting import wait_until

WON = Verdict.WON


@pytest.fixture(scope="module")
def formed() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


@pytest.fixture
async def one(formed: Cluster) -> AsyncIterator[Claimant]:
    for node in formed.nodes:
        node.flush()
    async with claimants(formed.url, 1) as (claimant,):
        yield claimant


async def test_a_slot_that_moved_is_followed(formed: Cluster, one: Claimant) -> None:
    space = encode("4711")
    slot = key_slot(KEYS.bucket(space).open.encode())
    # The client knows the old map by now; nothing is in the slot yet, so it can be given away as it stands.
    await one.redis.execute("GET", "x")
    old = formed.owner(slot)
    new = next(node for node in formed.nodes if node is not old)
    give(formed.nodes, slot, new)
    try:
        claim = one.claim(5, group="4711")
        assert await one.take(claim) is WON
        assert one.meters.unknown == {}
        one.claims.end(claim, Outcome.HANDLED, Reason.OK)
        await one.settled()
    finally:
        new.flush()
        give(formed.nodes, slot, old)


async def test_a_slot_on_its_way_is_asked_for_where_it_goes(formed: Cluster, one: Claimant) -> None:
    slot = key_slot(KEYS.leases.encode())
    await one.redis.execute("GET", "x")
    old = formed.owner(slot)
    new = next(node for node in formed.nodes if node is not old)
    new.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(old))
    old.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(new))
    try:
        assert await one.redis.execute("HSET", KEYS.leases, "9", "x") == 1
        assert await one.redis.execute("HGET", KEYS.leases, "9") == b"x"
        assert new.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
    finally:
        new.flush()
        new.ask("CLUSTER", "SETSLOT", slot, "STABLE")
        old.ask("CLUSTER", "SETSLOT", slot, "STABLE")


async def test_a_claim_whose_keys_are_on_both_sides_of_a_move_is_won_once_they_are_together(
    formed: Cluster, one: Claimant
) -> None:
    assert await one.report(1) is WON
    bucket = KEYS.bucket(encode("100200300"))
    slot = key_slot(bucket.open.encode())
    old = formed.owner(slot)
    new = next(node for node in formed.nodes if node is not old)
    steps = formed.move(slot, new)
    pair = {bucket.open.encode(), bucket.books.encode()}
    try:
        while len(pair & set(old.ask("CLUSTER", "GETKEYSINSLOT", slot, 9))) != 1:
            next(steps)
        claim = one.claim(500)
        asked = asyncio.ensure_future(one.take(claim))
        looked = asyncio.ensure_future(one.books())
        await wait_until(lambda: old.refusals().get("TRYAGAIN", 0) >= 2)
        for _ in steps:
            await asyncio.sleep(0)
        assert await asked is WON
        assert await one.report(1) is Verdict.LOST, "what was decided before the move is known after it"
        assert (await one.books()).distinct == 2
        assert (await looked).distinct in {1, 2}, "who only reads is not told of it"
    finally:
        new.flush()
        give(formed.nodes, slot, old)


async def test_when_a_node_dies_its_share_alone_fails_and_comes_back(formed: Cluster) -> None:
    async with opened(formed.url, late_ms=1000) as client:
        names = [f"key-{number}" for number in range(60)]
        await asyncio.gather(*(client.execute("SET", name, 1, "EX", 60) for name in names))
        dead = formed.nodes[2]
        lost = {name for name in names if formed.owner(key_slot(name.encode())) is dead}
        assert lost
        dead.kill()
        try:
            replies = await asyncio.gather(*(client.execute("GET", name) for name in names), return_exceptions=True)
            for name, reply in zip(names, replies, strict=True):
                if name in lost:
                    assert isinstance(reply, RedisUnavailable | ReplyUnknown)
                else:
                    assert reply == b"1"
        finally:
            dead.start()

        async def works_again() -> bool:
            calls = (client.execute("SET", name, 2, "EX", 60) for name in names)
            return set(await asyncio.gather(*calls, return_exceptions=True)) == {b"OK"}

        await wait_until(works_again, 20)

"""Several servers that act as one and are broken under load: slots that move, primaries that die, fail-over.

Replication is asynchronous: what was acknowledged right before a primary died may be forgotten. That is the window, by
the test's own clock; nothing outside of it may be lost or doubled.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pallas.keys import Keys, encode
from pallas.redis.cluster import key_slot
from tests.support.load import FIRST_GROUP, GROUPS, Load, loaded, told
from tests.support.proxy import lag
from tests.support.topology import Cluster, cluster, watched
from tests.support.waiting import wait_until

KEYS = Keys("pallas")
BEFORE_S = 0.3
"""Far more than a replica on the same machine is behind."""


async def move(formed: Cluster, slot: int) -> None:
    """Give a slot to another primary, one key at a time, with time in between."""
    old = await asyncio.to_thread(formed.owner, slot)
    steps = formed.move(slot, next(node for node in formed.primaries if node is not old))
    while await asyncio.to_thread(next, steps, None) is not None:
        await lag(0.03)


def crossed(formed: Cluster) -> int:
    """How often a node was asked for keys of two slots in one call."""
    return sum(node.refusals().get("CROSSSLOT", 0) for node in formed.nodes if node.pid)


def seen(formed: Cluster, code: str) -> int:
    return sum(node.refusals().get(code, 0) for node in formed.nodes if node.pid)


def assert_no_error_was_seen(load: Load) -> None:
    for shard in load._fleet:
        assert {outcome.value for outcome, _ in shard.meters.outcomes} == {"handled"}


@pytest.mark.row("F17")
async def test_slots_that_move_under_load_are_followed(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with cluster() as formed:
        async with loaded(formed.url, tmp_path) as load:
            slots = {key_slot(KEYS.bucket(encode(str(FIRST_GROUP + n))).open.encode()) for n in range(0, GROUPS, 6)}
            async with load.running():
                await load.resumed(5)
                for slot in (*slots, key_slot(KEYS.leases.encode())):
                    await move(formed, slot)
                back = await load.resumed(5)
            outcome = await load.settled()
            told(request, outcome, "F17", "slots move, one key at a time", back_s=back)
            assert_no_error_was_seen(load)
            assert crossed(formed) == 0
            assert seen(formed, "MOVED") > 0
            assert seen(formed, "ASK") + seen(formed, "TRYAGAIN") > 0, "messages came while slots were on their way"


@pytest.mark.row("F17")
async def test_when_a_primary_of_the_cluster_dies_its_replica_goes_on(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with cluster(replicas=True, node_timeout_ms=1000) as formed:
        async with loaded(formed.url, tmp_path) as load:
            async with load.running():
                await load.resumed(5)
                await lag(0.5)
                dead = formed.owner(key_slot(KEYS.leases.encode()))
                successor = formed.replicas[formed.primaries.index(dead)]
                killed = load.now
                dead.kill()
                await wait_until(lambda: successor.info("replication")["role"] == "master", 15)
                promoted = load.now
                back = await load.resumed(5)
                await lag(0.5)
            outcome = await load.settled(load.between(killed - BEFORE_S, killed))
            told(request, outcome, "F17", "a primary of 3+3 killed", back_s=back + promoted - killed)
            assert crossed(formed) == 0


@pytest.mark.row("F14")
@pytest.mark.parametrize("guarded", [True, pytest.param(False, marks=pytest.mark.chaos)])
async def test_a_primary_that_was_demoted_alive_is_left_for_its_successor(
    tmp_path: Path, request: pytest.FixtureRequest, *, guarded: bool
) -> None:
    with watched() as found:
        if guarded:
            found.primary.ask("CONFIG", "SET", "min-replicas-to-write", 1)
        async with loaded(found.url, tmp_path) as load:
            async with load.running():
                await load.resumed(5)
                await lag(0.5)
                told_at = load.now
                await asyncio.to_thread(found.fail_over)
                await wait_until(lambda: found.replica.info("replication")["role"] == "master", 15)
                promoted = load.now
                if not guarded:
                    # For about ten seconds both take writes, and what one of them decides the other does not know.
                    await wait_until(lambda: found.primary.info("replication")["role"] == "slave", 20)
                parted = load.now
                # The sentinel itself sees within a second or two that the replica obeyed.
                back = await load.resumed(5)
                await lag(0.5)
            window = load.between(told_at - BEFORE_S, parted)
            outcome = await load.settled(window)
            how = "min-replicas-to-write 1" if guarded else "no min-replicas-to-write: both take writes"
            told(request, outcome, "F14", f"primary demoted alive, {how}", back_s=back + parted - promoted)


@pytest.mark.row("F15")
async def test_when_the_watched_primary_dies_workers_follow_the_sentinels(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with watched(sentinels=3) as found:
        async with loaded(found.url, tmp_path) as load:
            async with load.running():
                await load.resumed(5)
                await lag(0.5)
                killed = load.now
                found.primary.kill()
                await wait_until(lambda: found.replica.info("replication")["role"] == "master", 15)
                back = await load.resumed(2)
                recovered = load.now
                await lag(0.5)
            outcome = await load.settled(load.between(killed - BEFORE_S, killed))
            told(request, outcome, "F15", "primary killed, three sentinels", back_s=recovered - killed)
            assert back <= 2

"""The same claims, leases and presence on every kind of server that a URL can name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis as plain

from pallas.claims import Verdict
from pallas.clock import SystemClock
from pallas.errors import RedisUnavailable, ReplyError, ReplyUnknown, ShardTaken
from pallas.keys import NO_TTL, encode
from pallas.model import Outcome, Reason
from pallas.redis import Redis, fatal_problems
from pallas.redis.cluster import key_slot
from shard.fleet import Fleet
from shard.presence import PresenceBook
from shard.redis_view import RedisView
from shard.registry import Lease
from shard.roster import Account, Roster
from shard.view import BotState, ShardState
from tests.support.claimants import KEYS, Claimant, claimants
from tests.support.opened import HandClock, opened
from tests.support.topology import SERVICE, Watched, cluster, cluster_url, contained, watched
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.waiting import wait_until

WON, LOST = Verdict.WON, Verdict.LOST
IMAGES = ["redis:7.2", "redis:8", "valkey/valkey:8", "valkey/valkey:9"]
TOPOLOGIES = [
    *("tcp", "unix", "memory", "cluster", "sentinel", "tls"),
    *(pytest.param(image, marks=pytest.mark.docker) for image in IMAGES),
]


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[ValkeyProcess]]:
    with cluster() as formed:
        yield formed


@pytest.fixture(scope="module")
def sentinel() -> Iterator[Watched]:
    with watched() as found:
        yield found


@pytest.fixture(params=TOPOLOGIES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty server of each kind; afterwards every key has a TTL or is on the list."""
    servers: list[ValkeyProcess] = []
    with contextlib.ExitStack() as stack:
        match request.param:
            case "tcp":
                servers = [request.getfixturevalue("valkey")]
                found = servers[0].url
            case "unix":
                socket = tmp_path / "valkey.sock"
                servers = [stack.enter_context(ValkeyProcess("--unixsocket", str(socket)))]
                found = f"unix://{socket}"
            case "memory":
                pytest.importorskip("fakeredis", reason="memory:// needs fakeredis, an extra")
                pytest.importorskip("lupa", reason="memory:// needs lupa, an extra")
                found = "memory://"
            case "cluster":
                servers = request.getfixturevalue("nodes")
                found = cluster_url(servers)
            case "sentinel":
                watched = request.getfixturevalue("sentinel")
                servers, found = [watched.primary], watched.url
            case image if ":" in image:
                found = stack.enter_context(contained(image))
            case _:
                pytest.skip("NOT TESTED: rediss:// needs a server with TLS, and the wheel's Valkey is built without")
        for server in servers:
            server.flush()
        yield found
        immortal = [key for server in servers for key in server.immortal_keys(NO_TTL)]
        assert not immortal, "these keys have no TTL and are not in pallas.keys.NO_TTL"


@pytest.fixture
async def client(url: str) -> AsyncIterator[Redis]:
    async with opened(url) as opening:
        yield opening


async def test_a_worker_may_start_there(client: Redis) -> None:
    assert await fatal_problems(client, SystemClock()) == []
    assert (await RedisView(client, KEYS, SystemClock(), name="x", purge_s=120).ready()).ready


async def test_replies_look_the_same_everywhere(client: Redis) -> None:
    assert await client.execute("HSET", "h", "a", 1, "b", b"\xff\x00") == 2
    assert await client.execute("EXPIRE", "h", 60) == 1
    assert await client.execute("HGETALL", "h") == [b"a", b"1", b"b", b"\xff\x00"]
    assert sorted(await client.execute("HKEYS", "h")) == [b"a", b"b"]
    assert await client.execute("SET", "s", "x", "EX", 60) == b"OK"
    assert await client.execute("SET", "s", "y", "NX", "GET") == b"x"
    assert await client.execute("GET", "none") is None
    seconds, micros = await client.execute("TIME")
    assert int(seconds) > 1_700_000_000
    assert 0 <= int(micros) < 1_000_000
    for command, code in (
        (("HGET", "s", "f"), "WRONGTYPE"),
        (("HGET", "h"), "ERR"),
        (("EVALSHA", "0" * 40, 1, "h"), "NOSCRIPT"),
    ):
        with pytest.raises(ReplyError) as refusal:
            await client.execute(*command)
        assert refusal.value.code == code


async def test_each_message_has_one_holder_and_the_books_balance(url: str) -> None:
    async with claimants(url, 3) as fleet:
        # Forty groups: on a cluster, every node has some.
        spaces = [encode(str(number)) for number in range(40)]
        verdicts = await asyncio.gather(
            *(shard.report(seq, group=space) for space in spaces for seq in (5, 70) for shard in fleet)
        )
        assert verdicts.count(WON) == 80
        plain_verdicts = await asyncio.gather(
            *(shard.report(None, text=f"t{n}", group=space) for space in spaces for n in range(2) for shard in fleet)
        )
        assert plain_verdicts.count(WON) == 80
        # By now each group is known as plain, so sequence and content have to agree.
        claims = [(fleet[0], fleet[0].claim(200, group=space)) for space in spaces]
        assert {await shard.take(claim, text="both") for shard, claim in claims} == {WON}
        assert {await fleet[1].report(None, text="both", group=space) for space in spaces} == {LOST}
        assert {await fleet[2].report(200, text="both", group=space) for space in spaces} == {LOST}
        for shard, claim in claims:
            await shard.claims.effect(claim)
            shard.handled(claim)
        await fleet[0].settled()
        books = await RedisView(fleet[0].redis, KEYS, SystemClock(), name="x", purge_s=120).books()
        assert (books.ended.distinct, books.ended.handled, books.ended.open) == (200, 40, 160)
        assert books.balanced


async def test_a_shard_id_has_one_holder(client: Redis) -> None:
    def lease(shard_id: int | None) -> Lease:
        return Lease(client, KEYS, HandClock(), shard_id=shard_id, life_s=0.3, info=lambda: {"pid": 1})

    first, second = lease(None), lease(None)
    await asyncio.gather(first.take(), second.take())
    assert {first.shard_id, second.shard_id} == {0, 1}
    with pytest.raises(ShardTaken):
        await lease(0).take()
    keeping = asyncio.ensure_future(first.keep())
    late = lease(second.shard_id)

    async def taken() -> bool:
        with contextlib.suppress(ShardTaken):
            await late.take()
        return late.is_held()

    await wait_until(taken)
    assert late.epoch > second.epoch
    assert first.is_held()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await first.release()
    view = RedisView(client, KEYS, SystemClock(), name="x", purge_s=120)
    assert [(row.shard_id, row.state) for row in await view.shards()] == [(str(late.shard_id), ShardState.LIVE)]


async def test_presence_is_written_seen_and_cleared(client: Redis) -> None:
    lease = Lease(client, KEYS, HandClock(), shard_id=0, life_s=60, info=lambda: {"pid": 1})
    await lease.take()
    book = PresenceBook(client, KEYS, lease, Roster(), purge_s=120)
    fleet = Fleet(client, KEYS, HandClock(), [])
    account = Account("7")
    account.nickname, account.connected_at = "牛牛", 100.0
    await book.put(account)
    await fleet.announce([account])
    view = RedisView(client, KEYS, SystemClock(), name="x", purge_s=120)
    (row,) = await view.bots()
    assert (row.self_id, row.nickname, row.state, row.connected_at) == ("7", "牛牛", BotState.ONLINE, 100.0)
    await book.purge()
    assert (await view.bots())[0].state is BotState.ONLINE
    await book.clear(["7"])
    assert (await view.bots())[0].state is BotState.OFFLINE
    await fleet.refresh()
    assert "7" in fleet


async def test_scripts_survive_a_lost_cache(url: str, request: pytest.FixtureRequest) -> None:
    async with claimants(url, 1) as (one,):
        assert await one.report(1) is WON
        if url.startswith("redis+cluster"):
            for node in request.getfixturevalue("nodes"):
                with plain.Redis(port=node.port) as admin:
                    admin.script_flush()
        else:
            await one.redis.execute("SCRIPT", "FLUSH")
        assert await one.report(1) is LOST
        assert await one.report(2) is WON


class TestCluster:
    """What only a cluster can do to a command."""

    @pytest.fixture
    async def one(self, nodes: list[ValkeyProcess]) -> AsyncIterator[Claimant]:
        for node in nodes:
            node.flush()
        async with claimants(cluster_url(nodes), 1) as (claimant,):
            yield claimant

    async def test_a_slot_that_moved_is_followed(self, nodes: list[ValkeyProcess], one: Claimant) -> None:
        space = encode("4711")
        slot = key_slot(KEYS.bucket(space).open.encode())
        # The client knows the old map by now; nothing is in the slot yet, so it can be given away as it stands.
        await one.redis.execute("GET", "x")
        old = next(node for node in nodes if owns(node, slot))
        new = next(node for node in nodes if node is not old)
        give(nodes, slot, new)
        try:
            claim = one.claim(5, group="4711")
            assert await one.take(claim) is WON
            assert one.meters.unknown == {}
            one.claims.end(claim, Outcome.HANDLED, Reason.OK)
            await one.settled()
        finally:
            with plain.Redis(port=new.port) as admin:
                admin.flushall()
            give(nodes, slot, old)

    async def test_a_slot_on_its_way_is_asked_for_where_it_goes(
        self, nodes: list[ValkeyProcess], one: Claimant
    ) -> None:
        slot = key_slot(KEYS.leases.encode())
        await one.redis.execute("GET", "x")
        old = next(node for node in nodes if owns(node, slot))
        new = next(node for node in nodes if node is not old)
        with plain.Redis(port=old.port) as there, plain.Redis(port=new.port) as here:
            old_id, new_id = there.cluster("MYID").decode(), here.cluster("MYID").decode()
            here.cluster("SETSLOT", slot, "IMPORTING", old_id)
            there.cluster("SETSLOT", slot, "MIGRATING", new_id)
            try:
                assert await one.redis.execute("HSET", KEYS.leases, "9", "x") == 1
                assert await one.redis.execute("HGET", KEYS.leases, "9") == b"x"
                assert here.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
            finally:
                here.flushall()
                here.cluster("SETSLOT", slot, "STABLE")
                there.cluster("SETSLOT", slot, "STABLE")

    async def test_when_a_node_dies_its_share_alone_fails_and_comes_back(self, nodes: list[ValkeyProcess]) -> None:
        async with opened(cluster_url(nodes), late_ms=1000) as client:
            names = [f"key-{number}" for number in range(60)]
            await asyncio.gather(*(client.execute("SET", name, 1, "EX", 60) for name in names))
            dead = nodes[2]
            lost = {name for name in names if owns(dead, key_slot(name.encode()))}
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


def owns(node: ValkeyProcess, slot: int) -> bool:
    with plain.Redis(port=node.port, protocol=2) as admin:
        mine = admin.cluster("MYID").decode()
        connection = admin.connection_pool.get_connection()
        try:
            connection.send_command("CLUSTER", "SLOTS")
            ranges = connection.read_response()
        finally:
            admin.connection_pool.release(connection)
    return any(first <= slot <= last and primary[2].decode() == mine for first, last, primary, *_ in ranges)


def give(nodes: list[ValkeyProcess], slot: int, owner: ValkeyProcess) -> None:
    with plain.Redis(port=owner.port) as admin:
        owner_id = admin.cluster("MYID").decode()
    # The new owner first: else the old one forgets the slot before anybody else has it.
    for node in sorted(nodes, key=lambda node: node is not owner):
        with plain.Redis(port=node.port) as admin:
            admin.cluster("SETSLOT", slot, "NODE", owner_id)


class TestSentinel:
    """What only a fail-over can do to a command."""

    async def test_when_the_primary_dies_claims_wait_for_its_successor(self) -> None:
        with watched() as found:
            async with claimants(found.url, 2) as (one, other):
                assert await one.report(1) is WON
                with plain.Redis(port=found.replica.port) as successor:
                    await wait_until(successor.dbsize, saying="the replica has the first claim")
                    found.primary.kill()
                    claim = one.claim(2)
                    assert await one.take(claim) is WON
                    assert sum(one.meters.unknown.values()) >= 1
                    assert successor.hget(claim.home, str(claim.field))[1:11] == claim.token
                # What the replica knew is remembered.
                assert await other.report(1) is LOST
                one.handled(claim)
                await one.settled()

    async def test_a_sentinel_that_is_gone_does_not_hide_the_others(self, sentinel: Watched) -> None:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        dead = free_port()
        async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
            port = silent.sockets[0].getsockname()[1]
            hosts = f"127.0.0.1:{dead},127.0.0.1:{port},127.0.0.1:{sentinel.sentinel_port}"
            async with opened(f"redis+sentinel://{hosts}/{SERVICE}/0", dead_after_ms=3000) as client:
                assert await client.execute("PING") == b"PONG"

    async def test_nothing_stays_open_to_the_sentinels(self, sentinel: Watched) -> None:
        async with opened(sentinel.url) as client:
            await asyncio.gather(*(client.execute("PING") for _ in range(1000)))
            with plain.Redis(port=sentinel.sentinel_port) as admin:
                mine = admin.client_id()
                others = [one for one in admin.client_list(_type="normal") if int(one["id"]) != mine]
            assert [one for one in others if not one["name"].startswith("sentinel-")] == []

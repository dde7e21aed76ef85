"""The same claims, leases and presence on every kind of server that a URL can name."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pallas import App, Context
from pallas.claim import Verdict
from pallas.clock import SystemClock
from pallas.errors import LeaseLost, ReplyError, ShardTaken
from pallas.keys import NO_TTL, encode
from pallas.redis import Redis, fatal_problems
from shard.fleet import Fleet
from shard.lapses import Lapses
from shard.orphans import Orphans
from shard.presence import PresenceBook
from shard.redis_view import RedisView
from shard.registry import Lease
from shard.roster import Account, Roster
from shard.view import BotState, ShardState
from tests.support.claimants import KEYS, claimants
from tests.support.opened import HandClock, opened
from tests.support.shards import group_message, shards
from tests.support.tls import Certificates, tls_end
from tests.support.topology import Cluster, Watched, cluster, contained, watched
from tests.support.topology_table import TOPOLOGIES
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

WON, LOST = Verdict.WON, Verdict.LOST
IMAGES = ["redis:7.2", "redis:8", "valkey/valkey:8", "valkey/valkey:9"]
KINDS = [*TOPOLOGIES, *(pytest.param(image, marks=pytest.mark.docker) for image in IMAGES)]


@pytest.fixture(scope="module")
def formed() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


@pytest.fixture(scope="module")
def sentinel() -> Iterator[Watched]:
    with watched() as found:
        yield found


@pytest.fixture(params=KINDS)
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
                group = request.getfixturevalue("formed")
                servers, found = group.nodes, group.url
            case "sentinel":
                watched = request.getfixturevalue("sentinel")
                servers, found = [watched.primary], watched.url
            case "tls":
                servers = [request.getfixturevalue("valkey")]
                issued = Certificates(tmp_path)
                port = stack.enter_context(tls_end(servers[0].port, issued.context()))
                found = f"rediss://127.0.0.1:{port}/0?tls_ca={issued.ca}"
            case image:
                found = stack.enter_context(contained(image))
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


async def test_what_a_dead_worker_held_is_taken_over_or_ended(url: str) -> None:
    async with claimants(url, 2) as (dead, taker):
        spaces = [encode(str(number)) for number in range(20)]
        for space in spaces:
            for seq, text in ((1, "taken"), (None, "taken by content"), (2, "begun"), (3, "left")):
                held = dead.claim(seq, group=space)
                assert await dead.take(held, text=text) is WON
                if text == "begun":
                    await dead.claims.effect(held)
                elif text != "left":
                    seen = taker.claim(seq, group=space)
                    assert await taker.take(seen, text=text) is LOST
                    assert seen.holder[1:] == held.token
                    assert await taker.claims.look([seen]) == [True]
                    assert await taker.claims.take_over(seen) is WON
                    assert await taker.claims.take_over(seen) is WON, "told again"
                    await taker.claims.effect(seen)
                    with pytest.raises(LeaseLost):
                        await dead.claims.effect(held)
                    taker.handled(seen)
        await taker.settled()
        clock, lapses = HandClock(), Lapses(taker.redis, KEYS, HandClock(), life_s=1)
        await Orphans(
            taker.redis, KEYS, taker.claims, lapses, clock, taker.meters, after_s=0, is_leased=lambda: True
        ).sweep()
        view = RedisView(taker.redis, KEYS, SystemClock(), name="x", purge_s=120)
        ended = (await view.books()).ended
        assert (ended.distinct, ended.handled, ended.open, ended.difference) == (80, 40, 0, 0)
        assert dict(ended.dead) == {"holder_lost": 20, "sent_unknown": 20}
        assert len(await view.dead()) == 40


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
            for node in request.getfixturevalue("formed").nodes:
                node.ask("SCRIPT", "FLUSH")
        else:
            await one.redis.execute("SCRIPT", "FLUSH")
        assert await one.report(1) is LOST
        assert await one.report(2) is WON


async def test_two_workers_answer_each_message_once(url: str, tmp_path: Path) -> None:
    app = App("topology-test")

    @app.command("ping")
    async def ping(ctx: Context) -> str:
        return f"pong {ctx.args}"

    # The in-memory server lives inside one client: another worker would have another.
    workers = 1 if url == "memory://" else 2
    async with shards(url, tmp_path, *[app] * workers) as fleet:
        for number in range(60):
            for place, shard in enumerate(fleet):
                # Twenty groups: on a cluster, every node has some. In every third no end reports sequences.
                group = 7000 + number % 20
                seq = None if group % 3 == 0 else number + 1
                shard.hear(group_message(f"1000{place + 1}", f"ping {number}", seq=seq, group_id=group))
        for shard in fleet:
            await shard.quiet(20)
        answers = Counter(text for shard in fleet for text in shard.sent())
        assert answers == {f"pong {number}": 1 for number in range(60)}
        assert await fleet[0].ended() == await fleet[-1].ended()
        ended = await fleet[0].ended()
        assert (ended.distinct, ended.handled, ended.open) == (60, 60, 0)

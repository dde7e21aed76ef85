"""A worker that is stopped leaves nothing behind: no open entry, no lease, no presence, and its books are published."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from pallas import App, Context
from pallas.model import Outcome, Reason
from shard.registry import read_lease
from tests.support.opened import opened
from tests.support.shards import group_message, listening, shards
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

_UPGRADE = (
    "GET /onebot/v11/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nX-Self-ID: 10001\r\n\r\n"
)


def bot() -> App:
    app = App("stopping-test")

    @app.command("ping")
    async def ping(ctx: Context) -> str:
        return f"pong {ctx.args}"

    @app.fanout("roll call")
    async def roll_call(ctx: Context) -> str:
        return f"here {ctx.bot_id}"

    return app


async def test_what_redis_grants_while_the_worker_stops_has_an_outcome(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path
) -> None:
    async with shards(redis_url, tmp_path, bot()) as (shard,):
        shard.connect("10001")
        await shard.quiet()
        # It knows that nobody else lives who could answer.
        await shard.worker.lapses.look()
        valkey.pause()
        try:
            for number in range(3):
                shard.hear(group_message("10001", f"ping {number}", seq=number))
            stopping = asyncio.ensure_future(shard.worker.stop())
            await wait_until(lambda: shard.worker.runner._stopping)
        finally:
            valkey.resume()
        await stopping
        assert shard.meters.outcomes == {(Outcome.DROPPED, Reason.SHUTDOWN): 3}
        assert shard.sent() == []
        ended = await shard.ended()
        assert (ended.distinct, dict(ended.dropped), ended.open) == (3, {"shutdown": 3}, 0)


async def test_a_lease_that_was_let_go_is_not_taken_again_by_a_link_that_does_not_close(
    redis_url: str, tmp_path: Path
) -> None:
    async with listening(redis_url, tmp_path, bot(), lease_s=0.9, claim_wait_ms=250, redis_dead_after_ms=800) as worker:
        reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
        writer.write(_UPGRADE.encode())
        assert b" 101 " in await reader.readline()
        await wait_until(lambda: worker.meters.links == 1)
        await worker.stop()
        writer.close()
    async with opened(redis_url) as client:
        assert await client.execute("HGETALL", worker.keys.leases) == []
        assert await client.execute("HGETALL", worker.keys.presence) == []


async def test_the_last_counts_of_a_worker_are_published(redis_url: str, tmp_path: Path) -> None:
    async with listening(redis_url, tmp_path, bot()) as worker, opened(redis_url) as client:
        await wait_until(lambda: client.execute("EXISTS", worker.keys.worker(0)))
        worker.meters.arrived += 50
        worker.meters.ignored += 50
        await worker.stop()
        published = json.loads(await client.execute("GET", worker.keys.worker(0)))
    assert (published["books"]["arrived"], published["books"]["ignored"]) == (50, 50)


async def test_a_fan_out_does_not_send_under_a_lease_that_was_given_up(redis_url: str, tmp_path: Path) -> None:
    async with shards(redis_url, tmp_path, bot()) as (shard,):
        shard.connect("10001")
        shard.connect("10002")
        shard.hear(group_message("10001", "roll call", seq=8))
        await shard.quiet()
        await shard.worker.lease.release()
        shard.hear(group_message("10002", "roll call", seq=8))
        await wait_until(shard.is_quiet)
        assert shard.sent() == ["here 10001"]
        assert shard.meters.fences >= 1


async def test_a_worker_whose_id_became_anothers_ends(redis_url: str, tmp_path: Path) -> None:
    async with (
        listening(redis_url, tmp_path, bot(), lease_s=0.9, claim_wait_ms=250, redis_dead_after_ms=800) as worker,
        opened(redis_url) as client,
    ):
        key = worker.keys.leases
        mine = await client.execute("HGET", key, 0)
        epoch, until_ms, _ = read_lease(mine)
        await client.execute("HSET", key, 0, f'{epoch + 1}|{until_ms + 60_000}|other|{{"pid":1,"host":"elsewhere"}}')
        failed = await asyncio.gather(asyncio.wait_for(worker.serve(), 10), return_exceptions=True)
    assert "leased to another worker (pid 1 on elsewhere)" in str(failed[0])


async def test_after_redis_lost_everything_the_prefix_is_marked_again(redis_url: str, tmp_path: Path) -> None:
    quick = {"lease_s": 0.9, "claim_wait_ms": 250, "redis_dead_after_ms": 800}
    async with listening(redis_url, tmp_path, bot(), **quick) as worker, opened(redis_url) as client:
        ours = await client.execute("GET", worker.keys.deployment)
        await client.execute("FLUSHALL")
        await wait_until(lambda: client.execute("EXISTS", worker.keys.leases))
        assert await client.execute("GET", worker.keys.deployment) == ours

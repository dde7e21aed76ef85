"""What is shown of messages that ended as dead, and of what workers hold: all of it, whatever else stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog

from pallas.app import App
from pallas.claim import Claim, Verdict
from pallas.clock import SystemClock
from pallas.context import Context
from pallas.keys import BUCKETS, encode, private_space
from pallas.model import Outcome, Reason
from pallas.redis import Redis
from shard.redis_view import RedisView
from tests.support.claimants import KEYS, Claimant, claimants
from tests.support.shards import group_message, shards

FOREIGN = ("", "e", "efoo", "c[]", "cnull", "x{}", 'e{"at": "soon"}', 'e{"at": 1e999}', 'c{"at": 1, "epoch": "new"}')


def view_of(client: Redis) -> RedisView:
    return RedisView(client, KEYS, SystemClock(), name="test", purge_s=120.0)


async def unknown(one: Claimant, space: str, *, at: float, **about: Any) -> Claim:
    """A message of this space whose holder heard no answer to what it had sent."""
    claim = one.claim(5, space=space)
    assert await one.take(claim) is Verdict.WON
    await one.claims.effect(claim)
    one.claims.unknown(claim, at=at, **about)
    await one.settled()
    return claim


async def test_all_buckets_are_listed_latest_first(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        spaces = [encode(str(number)) for number in range(200)]
        assert {KEYS.bucket(space).number for space in spaces} > set(range(BUCKETS // 2))
        for number, space in enumerate(spaces):
            await unknown(one, space, at=1000.0 + number, bot_id="7", handler="签到")
        rows = await view_of(one.redis).dead()
    assert [row.group_id for row in rows] == [str(number) for number in reversed(range(200))]
    assert {(row.reason, row.cause, row.bot_id, row.handler) for row in rows} == {
        ("sent_unknown", "no_answer", "7", "签到")
    }
    assert (rows[0].shard_id, rows[0].epoch) == (str(one.epoch.shard_id), one.epoch.epoch)


async def test_what_ended_at_one_time_is_listed_by_when_it_was_said_and_last_what_nobody_knows_of(
    redis_url: str,
) -> None:
    async with claimants(redis_url, 1) as (one,):
        dead = KEYS.bucket_keys(0).dead
        for number, said_at in enumerate([5, 0, 7, 6]):
            note = {"space": encode(str(number)), "at": 10, "said_at": said_at}
            await one.redis.execute("HSET", dead, f"token {number}", "e" + json.dumps(note))
        await one.redis.execute("EXPIRE", dead, 60)
        rows = await view_of(one.redis).dead()
    assert [(row.group_id, row.said_at) for row in rows] == [("2", 7.0), ("3", 6.0), ("0", 5.0), ("1", None)]


async def test_of_a_private_chat_the_account_is_known_and_the_person_is_not_told(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        await unknown(one, private_space("10001", "80001"), at=1.0)
        (row,) = await view_of(one.redis).dead()
    assert (row.bot_id, row.group_id) == ("10001", "")


async def test_foreign_values_hide_no_row(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        await unknown(one, encode("100"), at=1.0)
        used = KEYS.bucket(encode("100"))
        for number, value in enumerate(FOREIGN):
            await one.redis.execute("HSET", used.dead, f"foreign {number}", value)
        other = KEYS.bucket_keys((used.number + 1) % BUCKETS).dead
        await one.redis.execute("SET", other, "no hash", "EX", 60)
        with structlog.testing.capture_logs() as logs:
            rows = await view_of(one.redis).dead()
    assert [row.group_id for row in rows] == ["100"]
    assert {entry["key"] for entry in logs if entry["event"] == "dead.foreign_value"} == {used.dead, other}


async def test_a_bucket_that_lacks_a_message_is_not_made_good_by_one_that_has_too_many(redis_url: str) -> None:
    async with claimants(redis_url, 1) as (one,):
        await one.redis.execute("HINCRBY", KEYS.bucket_keys(3).books, "distinct", 2)
        await one.redis.execute("HINCRBY", KEYS.bucket_keys(4).books, "handled", 2)
        books = await view_of(one.redis).books()
    assert (books.ended.difference, books.ended.off, books.difference, books.balanced) == (0, 4, 4, False)


async def test_what_a_worker_publishes_of_what_it_holds_adds_up(redis_url: str, tmp_path: Path) -> None:
    app = App("two")

    @app.command("ping")
    async def ping(_: Context) -> str:
        return "pong"

    @app.command("fail")
    async def fail(_: Context) -> None:
        raise ValueError

    async with shards(redis_url, tmp_path, app) as (one,):
        for seq, text in enumerate(["ping", "ping", "fail"]):
            one.hear(group_message("10001", text, seq=seq))
        await one.quiet()
        one.meters.taken_over += 2
        one.meters.orphans[Reason.HOLDER_LOST] += 3
        await one.worker.pulse.publish()
        view = RedisView(one.worker._redis, one.worker.keys, SystemClock(), name="test", purge_s=60)
        (row,), books = await view.shards(), await view.books()
    counters = row.counters
    assert counters == books.workers[0].counters
    assert one.meters.outcomes == {(Outcome.HANDLED, Reason.OK): 2, (Outcome.DROPPED, Reason.HANDLER_ERROR): 1}
    assert counters.outcomes == {"handled": 2, "dropped:handler_error": 1}
    assert (counters.taken_over, counters.running, counters.orphans) == (2, 2, {"holder_lost": 3})
    assert (counters.held_difference, books.balanced) == (0, True)


@pytest.mark.parametrize("books", [{}, {"outcomes": {"handled": 3}}, {"distinct": 2, "running": 1}])
async def test_counters_that_do_not_add_up_are_shown_as_they_are(
    redis_url: str, tmp_path: Path, books: dict[str, Any]
) -> None:
    async with shards(redis_url, tmp_path, App("none")) as (one,):
        report = {"epoch": one.worker.lease.epoch, "books": {"arrived": books.get("distinct", 0), **books}}
        await one.worker._redis.execute("SET", one.worker.keys.worker(0), json.dumps(report), "EX", 60)
        view = RedisView(one.worker._redis, one.worker.keys, SystemClock(), name="test", purge_s=60)
        assert (await view.books()).balanced is (not books)

"""Claims by sequence: one holder, told to whoever asks, with books that balance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import redis as plain
from structlog.testing import capture_logs

from pallas.claim import Verdict
from pallas.clock import SystemClock
from pallas.errors import LeaseLost
from pallas.keys import encode, notice_space, private_space
from pallas.model import Outcome, Reason
from pallas.redis import script
from shard.redis_view import RedisView
from tests.support.claimants import GROUP, KEYS, TIME_S, Claimant, claimants
from tests.support.waiting import wait_until

WON, LOST = Verdict.WON, Verdict.LOST
BUCKET = KEYS.bucket(encode(GROUP))


@pytest.fixture
async def pair(redis_url: str) -> AsyncIterator[tuple[Claimant, Claimant]]:
    async with claimants(redis_url, 2) as (one, other):
        yield one, other


async def test_of_many_who_ask_at_once_one_wins(redis_url: str) -> None:
    async with claimants(redis_url, 8) as all_of_them:
        for seq in range(20):
            verdicts = await asyncio.gather(*(shard.report(seq) for shard in all_of_them))
            assert sorted(verdict.value for verdict in verdicts) == ["lost"] * 7 + ["won"]
        assert (await all_of_them[0].books()).distinct == 20


async def test_who_asks_again_with_the_same_token_has_still_won(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    assert await other.report(5) is LOST
    assert await one.take(claim) is WON
    assert (await one.books()).distinct == 1


async def test_another_account_of_the_winners_own_shard_loses(pair: tuple[Claimant, Claimant]) -> None:
    one, _ = pair
    assert await one.report(5) is WON
    assert await one.report(5) is LOST


async def test_the_winner_is_remembered_after_it_is_done(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    one.handled(claim)
    await one.settled()
    assert await other.report(5) is LOST


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        pytest.param({"user": "7"}, {"user": "8"}, WON, id="another sender is another message"),
        pytest.param({"time_s": TIME_S}, {"time_s": TIME_S + 3600}, LOST, id="reports an hour apart are one message"),
        pytest.param({"time_s": TIME_S}, {"time_s": TIME_S + 3601}, WON, id="later the sequence has wrapped"),
        pytest.param({"time_s": TIME_S}, {"time_s": TIME_S - 3601}, WON, id="earlier it had not yet"),
        pytest.param({"group": "1"}, {"group": "2"}, WON, id="another group"),
        pytest.param({"space": notice_space("1")}, {"group": "1"}, WON, id="a notice is no message"),
        pytest.param(
            {"space": private_space("1", "9")},
            {"space": private_space("2", "9")},
            WON,
            id="two accounts' private chats",
        ),
    ],
)
async def test_one_sequence_is_one_message_only_for_one_sender_and_hour(
    pair: tuple[Claimant, Claimant], first: dict[str, object], second: dict[str, object], verdict: Verdict
) -> None:
    one, other = pair
    assert await one.take(one.claim(5, **first)) is WON  # type: ignore[arg-type]
    assert await other.take(other.claim(5, **second)) is verdict  # type: ignore[arg-type]


async def test_neighbouring_and_distant_sequences_are_apart(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    for seq in (0, 1, 63, 64, 127, 128, 65534, 65535):
        assert await one.report(seq) is WON
        assert await other.report(seq) is LOST


async def test_invented_sequences_push_nobody_out_at_once(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    assert await one.report(5, user="7") is WON
    for stranger in ("66", "67"):
        assert await other.report(5, user=stranger) is WON
    assert await other.report(5, user="7") is LOST


async def test_what_was_pushed_out_still_ends_in_the_books(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    claim = one.claim(5, user="7")
    assert await one.take(claim) is WON
    for stranger in ("66", "67", "68"):
        assert await other.report(5, user=stranger) is WON
    await one.claims.effect(claim)
    one.handled(claim)
    await one.settled()
    books = await one.books()
    assert (books.distinct, books.counts["handled"], books.open) == (4, 1, 3)
    one.handled(claim)
    await one.settled()
    assert (await one.books()).counts["handled"] == 1


async def test_an_effect_is_recorded_before_it_happens(pair: tuple[Claimant, Claimant]) -> None:
    one, _ = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    assert await stored(one, 5) == b"c" + claim.token
    await one.claims.effect(claim)
    assert await stored(one, 5) == b"e" + claim.token
    await one.claims.effect(claim)
    one.handled(claim)
    await one.settled()
    assert await stored(one, 5) == b"d" + claim.token


async def stored(shard: Claimant, seq: int) -> bytes:
    record: bytes = await shard.redis.execute("HGET", BUCKET.block(seq), seq & 63)
    return record[:11]


@pytest.mark.parametrize(
    ("outcome", "reason", "name"),
    [
        (Outcome.HANDLED, Reason.OK, "handled"),
        (Outcome.DROPPED, Reason.HANDLER_ERROR, "dropped:handler_error"),
        (Outcome.DEAD, Reason.SENT_UNKNOWN, "dead:sent_unknown"),
    ],
)
async def test_an_end_is_counted_once_however_often_it_is_told(
    pair: tuple[Claimant, Claimant], outcome: Outcome, reason: Reason, name: str
) -> None:
    one, _ = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    assert (await one.books()).open == 1
    for _ in range(3):
        one.claims.end(claim, outcome, reason)
        await one.settled()
    books = await one.books()
    assert books.counts == {"distinct": 1, name: 1}
    assert books.open == 0


async def test_who_does_not_hold_an_entry_can_neither_act_nor_end_it(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    assert await one.report(5) is WON
    loser = other.claim(5)
    assert await other.take(loser) is LOST
    with pytest.raises(LeaseLost, match="another holder"):
        await other.claims.effect(loser)
    other.handled(loser)
    await other.settled()
    assert other.meters.fences == 2
    assert await one.books() == await other.books()
    assert (await one.books()).counts == {"distinct": 1}


@pytest.mark.parametrize("act", ["check", "effect", "end"])
async def test_under_an_epoch_that_may_have_lapsed_nothing_is_done(pair: tuple[Claimant, Claimant], act: str) -> None:
    one, _ = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    one.epoch.lapse()
    if act == "end":
        one.handled(claim)
        assert one.claims.unsettled == 0
    elif act == "check":
        with pytest.raises(LeaseLost, match="may have lapsed"):
            one.claims.check(claim)
    else:
        with pytest.raises(LeaseLost, match="may have lapsed"):
            await one.claims.effect(claim)
    assert one.meters.fences == 1
    assert await stored(one, 5) == b"c" + claim.token


async def test_a_new_epoch_does_not_complete_what_the_old_one_held(pair: tuple[Claimant, Claimant]) -> None:
    one, _ = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    one.epoch.lapse()
    one.epoch.renew()
    with pytest.raises(LeaseLost):
        await one.claims.effect(claim)


@pytest.mark.parametrize("act", ["effect", "end"])
async def test_an_entry_that_redis_lost_is_noticed(pair: tuple[Claimant, Claimant], act: str) -> None:
    one, _ = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    await one.redis.execute("FLUSHALL")
    if act == "effect":
        # Nobody else can hold it: the worker that won goes on.
        await one.claims.effect(claim)
    else:
        one.handled(claim)
        await one.settled()
        assert one.meters.forgot == 1
        assert (await one.books()).counts == {}


async def test_each_key_has_its_time_to_live(pair: tuple[Claimant, Claimant]) -> None:
    one, _ = pair
    await one.report(5)
    block = BUCKET.block(5)
    assert await one.redis.execute("TTL", block) == 90_720
    # It is prolonged only where the next message would be remembered for too short: an EXPIRE each would cost more
    # than the rest of the claim.
    await one.redis.execute("EXPIRE", block, 86_500)
    await one.report(6)
    assert await one.redis.execute("TTL", block) == 86_500
    await one.redis.execute("EXPIRE", block, 86_399)
    await one.report(7)
    assert await one.redis.execute("TTL", block) == 90_720


async def test_a_short_memory_has_a_time_to_live_as_well(redis_url: str) -> None:
    async with claimants(redis_url, 1, ttl_s=30) as (one,):
        await one.report(5)
        assert await one.redis.execute("TTL", BUCKET.block(5)) == 32


async def test_a_lost_script_is_no_lost_message(redis_url: str, pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    with plain.Redis.from_url(redis_url) as admin:
        for seq in range(3):
            admin.script_flush()
            claim = one.claim(seq)
            assert await one.take(claim) is WON
            admin.script_flush()
            assert await other.report(seq) is LOST
            admin.script_flush()
            await one.claims.effect(claim)
            admin.script_flush()
            one.handled(claim)
            await one.settled()
    assert (await one.books()).counts == {"distinct": 3, "handled": 3}


async def test_while_redis_refuses_writes_messages_wait_and_the_log_says_why(
    redis_url: str, pair: tuple[Claimant, Claimant]
) -> None:
    one, _ = pair
    earlier = one.claim(1)
    assert await one.take(earlier) is WON
    with plain.Redis.from_url(redis_url) as admin, capture_logs() as logs:
        admin.config_set("maxmemory", 1)
        try:
            one.handled(earlier)
            waiting = [asyncio.ensure_future(one.report(seq)) for seq in range(2, 30)]
            await wait_until(lambda: one.meters.unknown["refused"] > 60)
            assert not any(call.done() for call in waiting)
            assert one.claims.unsettled == 1
        finally:
            admin.config_set("maxmemory", 0)
        assert set(await asyncio.gather(*waiting)) == {WON}
    await one.settled()
    refusals = [line for line in logs if line["event"] == "claim.refused"]
    assert len(refusals) == 1
    assert refusals[0]["error"].startswith("OOM ")
    assert (await one.books()).counts == {"distinct": 29, "handled": 1}


@pytest.mark.leaves_keys
@pytest.mark.parametrize("key", [BUCKET.block(5), BUCKET.books], ids=["entry", "books"])
async def test_an_end_that_can_never_be_written_is_logged_and_given_up(
    pair: tuple[Claimant, Claimant], key: str
) -> None:
    one, _ = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    await one.redis.execute("SET", key, "foreign")
    with capture_logs() as logs:
        one.handled(claim)
        await one.settled()
    assert [line["event"] for line in logs] == ["claim.end_refused"]


async def test_one_refused_end_does_not_hold_back_those_of_the_same_turn(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    # Two hundred groups: their ends go out in the same turn, from several buckets in one call.
    claims = [one.claim(5, group=str(number)) for number in range(200)]
    for claim in claims:
        assert await one.take(claim) is WON
    refused = other.claim(5, group="0")
    assert await other.take(refused) is LOST
    other.handled(refused)
    for claim in claims:
        one.handled(claim)
    await one.settled()
    await other.settled()
    assert (one.meters.fences, other.meters.fences) == (0, 1)
    view = RedisView(one.redis, KEYS, SystemClock(), name="x", purge_s=1)
    books = (await view.books()).ended
    assert (books.distinct, books.handled, books.open) == (200, 200, 0)


async def test_the_books_balance_after_a_random_day(redis_url: str) -> None:
    rng = random.Random(11)
    ends = [(Outcome.HANDLED, Reason.OK), (Outcome.DROPPED, Reason.HANDLER_ERROR), (Outcome.DEAD, Reason.SENT_UNKNOWN)]
    async with claimants(redis_url, 4) as fleet:
        left_open = 0

        async def message(seq: int) -> int:
            nonlocal left_open
            claims = [(shard, shard.claim(seq)) for shard in rng.sample(fleet, rng.randint(1, 4))]
            verdicts = await asyncio.gather(*(shard.take(claim) for shard, claim in claims))
            for (shard, claim), verdict in zip(claims, verdicts, strict=True):
                if verdict is WON:
                    if rng.random() < 0.5:
                        await shard.claims.effect(claim)
                    if rng.random() < 0.1:
                        left_open += 1
                    else:
                        shard.claims.end(claim, *rng.choice(ends))
            return verdicts.count(WON)

        assert set(await asyncio.gather(*(message(seq) for seq in range(500)))) == {1}
        for shard in fleet:
            await shard.settled()
        books = await fleet[0].books()
        assert (books.distinct, books.open) == (500, left_open)
        assert books.distinct == books.ended + books.open
        limited = script("books_read")
        _, number, tokens, _ = await fleet[0].redis.run(
            limited, limited.named(books=BUCKET.books, open=BUCKET.open, limit=3, living=b"", own=b"")
        )
        assert (number, len(tokens)) == (left_open, min(3, left_open))

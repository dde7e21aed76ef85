"""A claim whose reply is lost or late: asked again until Redis has said yes or no, and never taken for a no."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable

import pytest

from pallas.claim import Verdict
from pallas.errors import LeaseLost
from pallas.keys import encode
from pallas.model import Outcome, Reason
from tests.support.claimants import GROUP, KEYS, Claimant, claimants
from tests.support.proxy import Proxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

WON, LOST, UNKNOWN = Verdict.WON, Verdict.LOST, Verdict.UNKNOWN
BUCKET = KEYS.bucket(encode(GROUP))


@pytest.fixture
async def proxy(redis_url: str, valkey: ValkeyProcess) -> AsyncIterator[Proxy]:
    assert redis_url
    async with Proxy(valkey.port) as opening:
        yield opening


@contextlib.asynccontextmanager
async def near_and_far(redis_url: str, proxy: Proxy) -> AsyncIterator[tuple[Claimant, Claimant]]:
    """A worker behind the proxy, warmed up, and one with a good line; both have different shard ids."""
    async with claimants(proxy.url, 1, late_ms=250, dead_after_ms=1000) as (far,), claimants(redis_url, 2) as (_, near):
        await far.redis.execute("PING")
        yield far, near


@pytest.mark.parametrize("seq", [5, None], ids=["by sequence", "by content"])
async def test_a_win_whose_reply_was_cut_is_a_win_when_asked_again(
    redis_url: str, proxy: Proxy, seq: int | None
) -> None:
    async with near_and_far(redis_url, proxy) as (far, near):
        # The first call of each script only teaches it to the server.
        await far.report(seq, group=GROUP, user="warm", text="up")
        proxy.cut_before_reply = 1
        assert await far.report(seq) is WON
        assert proxy.cut_before_reply == 0
        assert far.meters.unknown["no_reply"] >= 1
        assert await near.report(seq) is LOST
        assert (await near.books()).distinct == 2


@pytest.mark.parametrize("answer", [0, 99, [], "yes", b"", b"t", b"s", b"x1"], ids=repr)
async def test_an_answer_that_cannot_be_read_is_no_answer(redis_url: str, answer: object) -> None:
    async with claimants(redis_url, 1) as (one,):
        claim = one.claim(5)
        assert one.claims.verdict(claim, answer) is None
        assert await one.claims.take(claim, bytes, 5.0, answer=answer) is WON
        assert one.meters.unknown["refused"] == 1


async def test_what_is_given_back_while_its_effect_is_recorded_is_not_claimed_anew_without_a_token(
    redis_url: str,
) -> None:
    async with claimants(redis_url, 1) as (one,):
        claim = one.claim(5)
        assert await one.take(claim) is WON
        await one.redis.execute("FLUSHALL")
        effect = asyncio.ensure_future(one.claims.effect(claim))
        await asyncio.sleep(0)
        one.claims.release(claim)
        with pytest.raises(LeaseLost):
            await effect
        await one.settled()
        assert await one.redis.execute("HGETALL", BUCKET.open) == []


@pytest.mark.parametrize("seq", [5, None], ids=["by sequence", "by content"])
async def test_a_loss_whose_reply_was_cut_is_a_loss_when_asked_again(
    redis_url: str, proxy: Proxy, seq: int | None
) -> None:
    async with near_and_far(redis_url, proxy) as (far, near):
        assert await near.report(seq) is WON
        proxy.cut_before_reply = 1
        assert await far.report(seq) is LOST
        assert far.meters.unknown["no_reply"] >= 1
        assert (await near.books()).distinct == 1


async def test_a_claim_that_never_arrived_wins_when_asked_again(redis_url: str, proxy: Proxy) -> None:
    async with near_and_far(redis_url, proxy) as (far, near):
        proxy.cut_before_request = 1
        assert await far.report(5) is WON
        assert await near.report(5) is LOST


async def test_a_win_whose_reply_is_late_counts_once(redis_url: str, proxy: Proxy) -> None:
    async with near_and_far(redis_url, proxy) as (far, near):
        proxy.stall()
        asking = asyncio.ensure_future(far.report(5))
        await wait_until(lambda: far.meters.unknown["no_reply"] >= 2)
        assert not asking.done()
        proxy.resume()
        assert await asking is WON
        assert await near.report(5) is LOST
        assert (await near.books()).distinct == 1


async def test_while_redis_is_away_a_claim_waits_and_wins_afterwards(
    new_valkey: Callable[..., ValkeyProcess],
) -> None:
    server = new_valkey()
    async with claimants(server.url, 1) as (one,):
        await one.redis.execute("PING")
        server.kill()
        asking = asyncio.ensure_future(one.report(5))
        await wait_until(lambda: one.meters.unknown["not_connected"] >= 2)
        server.start()
        assert await asking is WON


async def test_patience_ends_and_what_may_be_ours_is_ended_too(redis_url: str, proxy: Proxy) -> None:
    async with near_and_far(redis_url, proxy) as (far, near):
        # So that the server knows the script, and the first call that arrives runs.
        assert await far.report(1) is WON
        proxy.stall()
        assert await far.take(far.claim(5), patience_s=0.5) is UNKNOWN
        proxy.resume()
        await wait_until(lambda: far.claims.unsettled == 0)
        # The claim had arrived and won: its entry does not stay open for ever.
        books = await near.books()
        assert books.counts == {"distinct": 2, "dropped:redis_unavailable": 1}
        assert books.open == 1


async def test_an_effect_waits_until_it_is_surely_recorded(redis_url: str, proxy: Proxy) -> None:
    async with near_and_far(redis_url, proxy) as (far, near):
        claim = far.claim(5)
        assert await far.take(claim) is WON
        proxy.stall()
        effect = asyncio.ensure_future(far.claims.effect(claim))
        await wait_until(lambda: far.meters.unknown["no_reply"] >= 2)
        assert not effect.done(), "an effect in doubt must not happen"
        proxy.resume()
        await effect
        record = await near.redis.execute("HGET", BUCKET.block(5), 5)
        assert record[:11] == b"e" + claim.token


@pytest.mark.parametrize("knob", ["cut_before_reply", "cut_before_request"])
async def test_an_end_is_repeated_until_confirmed_and_counted_once(redis_url: str, proxy: Proxy, knob: str) -> None:
    async with near_and_far(redis_url, proxy) as (far, near):
        claim = far.claim(5)
        assert await far.take(claim) is WON
        setattr(proxy, knob, 1)
        far.handled(claim)
        await wait_until(lambda: getattr(proxy, knob) == 0)
        await far.settled()
        assert (await near.books()).counts == {"distinct": 1, "handled": 1}


async def test_an_end_that_waits_for_redis_is_given_up_when_the_epoch_lapses(redis_url: str, proxy: Proxy) -> None:
    async with near_and_far(redis_url, proxy) as (far, near):
        claim = far.claim(5)
        assert await far.take(claim) is WON
        proxy.cut_before_request = 1
        far.handled(claim)
        far.epoch.lapse()
        await wait_until(lambda: far.claims.unsettled == 0)
        assert far.meters.fences == 1
        assert (await near.books()).open == 1


async def test_whatever_is_cut_each_message_has_one_winner_and_one_end(redis_url: str, proxy: Proxy) -> None:
    rng = random.Random(5)
    async with (
        claimants(proxy.url, 3, late_ms=300, dead_after_ms=1000) as fleet,
        claimants(redis_url, 4) as (*_, onlooker),
    ):

        async def message(seq: int) -> int:
            if rng.random() < 0.3:
                setattr(proxy, rng.choice(["cut_before_reply", "cut_before_request"]), 1)
            claims = [(shard, shard.claim(seq)) for shard in fleet]
            verdicts = await asyncio.gather(*(shard.take(claim) for shard, claim in claims))
            for (shard, claim), verdict in zip(claims, verdicts, strict=True):
                if verdict is WON:
                    await shard.claims.effect(claim)
                    shard.claims.end(claim, Outcome.HANDLED, Reason.OK)
            return verdicts.count(WON)

        winners = []
        for first in range(0, 300, 5):
            winners += await asyncio.gather(*(message(seq) for seq in range(first, first + 5)))
        assert set(winners) == {1}
        proxy.cut_before_reply = proxy.cut_before_request = 0
        for shard in fleet:
            await shard.settled()
        assert sum(shard.meters.unknown["no_reply"] for shard in fleet) > 20, "the proxy cut too little to prove much"
        books = await onlooker.books()
        assert books.counts == {"distinct": 300, "handled": 300}
        assert books.open == 0

"""A worker whose epoch dies, or that is started anew, neither loses what it had won nor takes a copy for a message."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pallas.claim import Verdict
from pallas.errors import LeaseLost
from pallas.keys import encode
from pallas.redis import script
from tests.support.claimants import GROUP, KEYS, Claimant, claimants

WON, LOST = Verdict.WON, Verdict.LOST
BUCKET = KEYS.bucket(encode(GROUP))


@pytest.fixture
async def pair(redis_url: str) -> AsyncIterator[tuple[Claimant, Claimant]]:
    async with claimants(redis_url, 2) as (one, other):
        yield one, other


@pytest.mark.parametrize("seq", [5, None], ids=["by sequence", "by content"])
async def test_a_claim_won_under_an_epoch_that_died_meanwhile_is_still_won(
    pair: tuple[Claimant, Claimant], seq: int | None
) -> None:
    one, other = pair
    claim = one.claim(seq)
    assert await one.take(claim) is WON
    # As where the reply was lost and the lease with it: the same claim is asked again under the next epoch.
    former = claim.token
    one.epoch.lapse()
    one.epoch.renew()
    assert await one.take(claim) is WON
    assert claim.token != former
    assert await other.report(seq) is LOST
    await one.claims.effect(claim)
    one.handled(claim)
    await one.settled()
    assert (await one.books()).counts == {"distinct": 1, "handled": 1}
    assert (await one.books()).open == 0


async def test_an_entry_that_was_begun_is_not_taken_over(pair: tuple[Claimant, Claimant]) -> None:
    one, _ = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    await one.claims.effect(claim)
    one.epoch.renew()
    assert await one.take(claim) is LOST


async def test_taking_over_needs_the_token_as_it_was_seen(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    take, fresh, foreign = script("entry_take"), other.epoch.token(), other.epoch.token()
    home, field = BUCKET.block(5), 5
    call = take.command(home, BUCKET.open, field, foreign, fresh)
    assert await other.redis.run(take, call) == 0
    call = take.command(home, BUCKET.open, field, claim.token, fresh)
    assert [await other.redis.run(take, call) for _ in range(2)] == [1, 1]
    with pytest.raises(LeaseLost):
        await one.claims.effect(claim)
    assert (await one.books()).open == 1


async def test_a_late_copy_at_a_worker_that_was_started_anew_is_a_copy(pair: tuple[Claimant, Claimant]) -> None:
    one, _ = pair
    assert await one.report(None, mark="10001:1") is WON
    one.epoch.renew()
    assert await one.report(None, mark="10002:9") is LOST
    # And the same account's own report once more, too.
    one.epoch.renew()
    assert await one.report(None, mark="10001:1") is LOST


async def test_an_effect_is_recorded_anew_where_redis_lost_the_entry(pair: tuple[Claimant, Claimant]) -> None:
    one, other = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    await one.redis.execute("FLUSHALL")
    await one.claims.effect(claim)
    assert await other.report(5) is LOST


async def test_nothing_is_sent_for_an_entry_that_redis_lost_and_another_has_won(
    pair: tuple[Claimant, Claimant],
) -> None:
    one, other = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    await one.redis.execute("FLUSHALL")
    assert await other.report(5) is WON
    with pytest.raises(LeaseLost):
        await one.claims.effect(claim)


async def test_the_effect_of_an_entry_that_was_pushed_out_stands_in_open(pair: tuple[Claimant, Claimant]) -> None:
    one, _ = pair
    claim = one.claim(5)
    assert await one.take(claim) is WON
    for user in "89ab":
        assert await one.report(5, user=user) is WON
    await one.claims.effect(claim)
    assert (await one.redis.execute("HGET", BUCKET.open, claim.token))[:1] == b"e"

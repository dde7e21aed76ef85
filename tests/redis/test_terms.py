"""What ends ask of matching, told through Redis: contents for those without sequences, tolerance for clocks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from pallas.claim import Verdict
from pallas.keys import ANY_SPACE, BUCKETS, encode
from pallas.onebot.ends import End
from pallas.onebot.link import Link, Role
from pallas.redis import Redis
from shard.roster import Account, Roster
from shard.terms import PERIOD_S, TermsBook
from tests.support.claimants import GROUP, KEYS, claimants
from tests.support.opened import HandClock, opened
from tests.support.waiting import wait_until

PLAIN = KEYS.bucket(encode(GROUP)).plain


class Desk:
    """A worker's accounts and what they ask for."""

    def __init__(self, redis: Redis, clock: HandClock) -> None:
        self.clock = clock
        self.roster = Roster()
        self.book = TermsBook(redis, KEYS, clock, self.roster)

    def connect(self, bot_id: str, end: End = End.NAPCAT, version: str = "", *, ago_s: float = 1.0) -> Account:
        link = Link(
            _Silent(),
            1,
            bot_id=bot_id,
            role=Role.UNIVERSAL,
            end=end,
            version=version,
            user_agent="",
            peer="",
            opened_at=self.clock.wall_s(),
        )
        account = self.roster.join(link, self.clock.wall_s())
        self.book.connected(account)
        self.clock.advance(ago_s)
        return account

    def heard(self, bot_id: str, *, with_seq: int = 0, without_seq: int = 0) -> None:
        """Reports of group messages came in."""
        conduct = self.roster.conducts[bot_id]
        conduct.reports += with_seq + without_seq
        conduct.without_seq += without_seq

    @property
    def contents(self) -> bool:
        return self.book.terms.contents


class _Silent:
    async def write(self, frame: bytes) -> None:
        """Nothing is said to this end."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """It stays."""


@pytest.fixture
async def desks(redis_url: str) -> AsyncIterator[tuple[Desk, Desk, HandClock, Redis]]:
    clock = HandClock(time.time())
    async with opened(redis_url) as redis:
        yield Desk(redis, clock), Desk(redis, clock), clock, redis


async def marked(redis: Redis) -> int:
    """How many buckets count as having such an end in every space now."""
    return sum(left > 0 for left in await lives_s(redis))


async def lives_s(redis: Redis) -> list[int]:
    """For how many seconds each bucket's mark lasts yet, 0 where there is none."""
    now = int((await redis.execute("TIME"))[0])
    names = [KEYS.bucket_keys(number).plain for number in range(BUCKETS)]
    found = await asyncio.gather(*(redis.execute("ZSCORE", name, ANY_SPACE) for name in names))
    return [max(0, int(until or 0) - now) for until in found]


async def test_an_end_that_surely_reports_sequences_asks_for_nothing(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, other, _, redis = desks
    one.connect("1", End.NAPCAT, "4.9.0")
    one.connect("2", End.LAGRANGE)
    await one.book.beat()
    await other.book.beat()
    assert (one.contents, other.contents) == (False, False)
    assert await redis.execute("EXISTS", KEYS.terms) == 0
    assert await marked(redis) == 0


async def test_an_end_that_has_not_shown_what_it_is_asks_until_it_has(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, other, clock, _ = desks
    one.connect("1")
    await one.book.beat()
    await other.book.beat()
    assert (one.contents, other.contents) == (True, True)
    one.heard("1", with_seq=1)
    clock.advance(5)
    await one.book.beat()
    await other.book.beat()
    assert (one.contents, other.contents) == (False, False)


async def test_an_end_that_comes_while_a_beat_is_on_is_given_the_moment_to_say_what_it_is(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, _, clock, redis = desks
    account = one.connect("1", ago_s=0)
    one.connect("2", ago_s=0)
    await one.book.beat()
    assert not one.contents
    assert await marked(redis) == 0
    account.version = "4.9.0"
    clock.advance(1)
    await one.book.beat()
    assert one.contents, "the other one has not said it"
    assert await redis.execute("HGET", KEYS.terms, "1") is None


async def test_an_end_without_sequences_asks_for_a_day_also_after_it_left(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, other, clock, redis = desks
    one.connect("1", End.NAPCAT, "4.9.0")
    one.heard("1", without_seq=1)
    await one.book.beat()
    assert 86_000 < await redis.execute("TTL", KEYS.terms) <= 86_400
    clock.advance(86_399)
    await other.book.beat()
    assert other.contents
    clock.advance(2)
    await other.book.beat()
    assert not other.contents
    assert await redis.execute("HLEN", KEYS.terms) == 0, "who asks for nothing any more is taken out"


async def test_what_redis_forgot_is_asked_for_again_and_meanwhile_still_given(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, other, clock, redis = desks
    one.connect("1", End.NAPCAT, "4.9.0")
    one.heard("1", without_seq=1)
    await one.book.beat()
    await other.book.beat()
    clock.advance(PERIOD_S)
    await one.book.beat()
    await redis.execute("FLUSHALL")
    await other.book.beat()
    assert other.contents, "its worker has had no time to ask again"
    clock.advance(PERIOD_S)
    await one.book.beat()
    assert await marked(redis) == BUCKETS
    await other.book.beat()
    assert other.contents
    one.roster.leave(next(iter(one.roster)).links[0])
    await redis.execute("FLUSHALL")
    await other.book.beat()
    clock.advance(60)
    await other.book.beat()
    assert not other.contents, "nobody asks any more"


async def test_an_end_behind_a_new_link_must_show_again_what_it_is(desks: tuple[Desk, Desk, HandClock, Redis]) -> None:
    one, _, clock, _ = desks
    account = one.connect("1")
    one.heard("1", with_seq=5)
    await one.book.beat()
    assert not one.contents
    one.roster.leave(account.links[0])
    clock.advance(60)
    one.connect("1")
    await one.book.beat()
    assert one.contents


async def test_a_successor_goes_on_with_what_an_earlier_worker_knew(desks: tuple[Desk, Desk, HandClock, Redis]) -> None:
    one, other, clock, _ = desks
    one.connect("1")
    one.heard("1", without_seq=3)
    await one.book.beat()
    # Its end was updated meanwhile; its earlier messages are still about.
    other.connect("1", End.NAPCAT, "4.9.0")
    other.heard("1", with_seq=3)
    clock.advance(30)
    await other.book.beat()
    assert other.contents


async def test_a_clock_that_is_off_makes_every_worker_compare_within_a_second(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, other, clock, _ = desks
    one.connect("1", End.NAPCAT, "4.9.0")
    one.roster.conducts["1"].is_off = True
    await one.book.beat()
    await other.book.beat()
    assert (one.book.terms.tolerance_s, other.book.terms.tolerance_s) == (1, 1)
    assert not other.contents
    one.roster.conducts["1"].is_off = False
    clock.advance(601)
    await one.book.beat()
    await other.book.beat()
    assert (one.book.terms.tolerance_s, other.book.terms.tolerance_s) == (0, 0)


async def test_until_all_workers_have_heard_of_it_the_scripts_keep_contents(
    desks: tuple[Desk, Desk, HandClock, Redis], redis_url: str
) -> None:
    one, _, _, redis = desks
    one.connect("1")
    await one.book.beat()
    assert await marked(redis) == BUCKETS
    async with claimants(redis_url, 2) as (deaf, plain):
        # This worker has not heard yet; what it claims is found by the new account's reports all the same.
        assert await deaf.report(7) is Verdict.WON
        assert await plain.report(None) is Verdict.LOST
    assert max(await lives_s(redis)) <= 13, "every worker has read it by then"


async def test_the_mark_of_an_end_that_soon_shows_a_sequence_is_not_renewed(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, _, clock, redis = desks
    one.connect("1")
    await one.book.beat()
    one.heard("1", with_seq=1)
    for _ in range(4):
        clock.advance(5)
        await one.book.beat()
    assert max(await lives_s(redis)) <= 13


async def test_while_an_end_asks_for_contents_the_scripts_know_it_for_workers_that_have_not_heard(
    desks: tuple[Desk, Desk, HandClock, Redis], redis_url: str
) -> None:
    one, _, clock, redis = desks
    one.connect("1", End.NAPCAT, "4.6.0")
    for _ in range(24):
        await one.book.beat()
        clock.advance(5)
        # As time passes in Redis.
        await redis.execute("ZINCRBY", PLAIN, -5, ANY_SPACE)
        assert int(await redis.execute("ZSCORE", PLAIN, ANY_SPACE)) > time.time() + 5, "a beat may come late"
    async with claimants(redis_url, 2) as (stopped, plain):
        # It was stopped all the while, and has not read the terms yet.
        assert await stopped.report(7) is Verdict.WON
        assert await plain.report(None) is Verdict.LOST


async def test_the_marks_of_a_killed_worker_lapse_though_others_keep_their_keys(
    desks: tuple[Desk, Desk, HandClock, Redis], redis_url: str
) -> None:
    one, other, clock, redis = desks
    one.connect("1")
    await one.book.beat()
    clock.advance(5)
    await one.book.beat()
    assert 50 < min(await lives_s(redis)) <= max(await lives_s(redis)) <= 61
    # Its worker is killed; the account goes on elsewhere, and shows its sequences.
    other.connect("1")
    other.heard("1", with_seq=1)
    await other.book.beat()
    async with claimants(redis_url, 1) as (plain,):
        for number in range(3):
            await plain.report(None, text=f"an end without sequences, {number}")
    assert await redis.execute("TTL", PLAIN) > 80_000
    assert max(await lives_s(redis)) <= 61


async def test_a_mark_that_another_workers_account_needs_is_not_cut_short(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, other, clock, redis = desks
    one.connect("1")
    await one.book.beat()
    clock.advance(5)
    await one.book.beat()
    before = await lives_s(redis)
    # One that has only just connected there asks for less.
    other.connect("2")
    await other.book.beat()
    assert min(await lives_s(redis)) >= min(before) - 2
    one.heard("1", with_seq=1)
    other.heard("2", with_seq=1)
    clock.advance(13)
    await one.book.beat()
    await other.book.beat()
    assert await marked(redis) == BUCKETS, "nobody takes it back: a third may need it"


@pytest.mark.leaves_keys
async def test_a_foreign_value_under_one_mark_keeps_nobody_from_being_announced(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, other, _, redis = desks
    await redis.execute("RPUSH", PLAIN, "theirs")
    one.connect("1")
    await one.book.beat()
    await other.book.beat()
    assert other.contents
    await redis.execute("DEL", PLAIN)
    await one.book.beat()
    assert await marked(redis) == BUCKETS, "it was tried again"


async def test_without_the_mark_what_was_claimed_by_sequence_alone_is_taken_for_another_message(redis_url: str) -> None:
    async with claimants(redis_url, 2) as (deaf, plain):
        assert await deaf.report(7) is Verdict.WON
        assert await plain.report(None) is Verdict.WON


async def test_a_copy_with_a_sequence_makes_an_older_claim_known_by_its_content(redis_url: str) -> None:
    async with claimants(redis_url, 3) as (deaf, copy, plain):
        assert await deaf.report(7) is Verdict.WON
        assert await plain.report(None, text="the first without a sequence") is Verdict.WON
        assert await copy.report(7) is Verdict.LOST
        assert await plain.report(None) is Verdict.LOST


@pytest.mark.leaves_keys
async def test_foreign_values_are_no_terms(desks: tuple[Desk, Desk, HandClock, Redis]) -> None:
    one, _, _, redis = desks
    await redis.execute("HSET", KEYS.terms, "1", "x", b"\xff", "9 9", "3", "99999999999", "4", "99999999999 0 0")
    await one.book.beat()
    assert not one.contents


async def test_a_new_link_is_announced_at_once(
    desks: tuple[Desk, Desk, HandClock, Redis],
) -> None:
    one, other, _, redis = desks
    keeping = asyncio.create_task(one.book.keep())
    try:
        one.connect("1")
        await wait_until(lambda: one.contents, 3.0, saying="it asks for contents")
        await other.book.beat()
        assert other.contents
        assert await redis.execute("HLEN", KEYS.terms) == 1
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping

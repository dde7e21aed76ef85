"""An entry that newer records pushed out of its home: given back, taken, begun and ended all the same, and once.

A place keeps three records of one sequence, and 2 kB of one content. What is pushed out lives on in `open` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pallas.claim import Claim, Verdict, nobody_of
from pallas.errors import LeaseLost
from pallas.keys import encode
from pallas.redis import script
from shard.lapses import Lapses
from shard.orphans import Orphans
from shard.report import Report
from shard.standby import Standby
from tests.support.claimants import GROUP, KEYS, Claimant, claimants, said
from tests.support.opened import HandClock

BUCKET = KEYS.bucket(encode(GROUP))
SEQS = pytest.mark.parametrize("seq", [5, None], ids=["by sequence", "by content"])
WON, LOST, UNKNOWN = Verdict.WON, Verdict.LOST, Verdict.UNKNOWN
AFTER_S = 30.0
TWINS = 130
"""More equal texts of one second than a place has room for."""


class Known(Lapses):
    """Which epochs are dead, as the test says."""

    def __init__(self) -> None:
        self.dead: set[int] = set()

    async def look(self) -> None:
        """There is nothing to ask."""

    @property
    def live(self) -> frozenset[int]:
        return frozenset()

    def is_dead(self, epoch: int) -> bool:
        return not epoch or epoch in self.dead


class Worker:
    """One worker's standby and what it has in hand, and how often it has answered."""

    def __init__(self, claimant: Claimant, lapses: Known) -> None:
        self.claimant, self.claims, self.lapses = claimant, claimant.claims, lapses
        self.clock = HandClock()
        self.in_hand: list[Claim] = []
        self.answers = 0
        self.report = cast("Report", SimpleNamespace(body=lambda: said("7", "hello")))
        self.standby = Standby(
            claims=self.claims,
            lapses=lapses,
            clock=self.clock,
            meters=claimant.meters,
            take_up=lambda _, claim: self.in_hand.append(claim),
            may_answer=lambda _: True,
            has_room=lambda: True,
            max_messages=100,
            look_s=1.0,
        )

    async def hear(self, seq: int | None) -> Claim:
        """Report the message, and hold it or stand by."""
        claim = self.claimant.claim(seq)
        if await self.claimant.take(claim) is WON:
            self.in_hand.append(claim)
        else:
            self.standby.keep(self.report, claim)
        return claim

    def give_back(self) -> None:
        """Have the others answer, as where no link is left."""
        while self.in_hand:
            self._let_go(self.in_hand.pop())

    def _let_go(self, claim: Claim) -> None:
        self.claims.release(claim)
        self.standby.keep(self.report, claim)

    async def answer(self) -> None:
        """Send for what is in hand, where that may be."""
        while self.in_hand:
            claim = self.in_hand.pop()
            try:
                await self.claims.effect(claim)
            except LeaseLost:
                self._let_go(claim)
            else:
                self.answers += 1
                self.claimant.handled(claim)

    async def look(self) -> None:
        """Look at all that stands by, however long it had wanted to wait."""
        self.clock.advance(10)
        await self.standby.look()

    def lapse(self) -> None:
        """Be dead to the others, and alive under a new epoch."""
        self.lapses.dead.add(self.claimant.epoch.epoch)
        self.claimant.epoch.renew()


class Room:
    """Three workers that see one message, and one whose accounts report others into its place."""

    def __init__(self, all_of_them: list[Claimant]) -> None:
        *three, self.pusher = all_of_them
        self.lapses = Known()
        self.workers = [Worker(claimant, self.lapses) for claimant in three]
        self.others = 0

    async def heard(self, seq: int | None) -> list[Claim]:
        return [await worker.hear(seq) for worker in self.workers]

    async def push_out(self, seq: int | None) -> None:
        """Report, and answer, as many other messages as push one out."""
        users = ["7"] * TWINS if seq is None else [f"pusher {self.others + number}" for number in range(3)]
        claims = [self.pusher.claim(seq, user=user) for user in users]
        verdicts = await asyncio.gather(
            *(self.pusher.take(claim, user) for claim, user in zip(claims, users, strict=True))
        )
        for claim, verdict in zip(claims, verdicts, strict=True):
            if verdict is WON:
                self.others += 1
                self.pusher.handled(claim)
        await self.pusher.settled()

    async def settled(self) -> None:
        for worker in self.workers:
            await worker.claimant.settled()

    async def swept(self) -> None:
        """Sweep until all is due that nobody goes on with."""
        clock = HandClock()
        pusher = self.pusher
        orphans = Orphans(
            pusher.redis,
            KEYS,
            pusher.claims,
            self.lapses,
            clock,
            pusher.meters,
            after_s=AFTER_S,
            is_leased=lambda: True,
        )
        for _ in range(7):
            await orphans.sweep()
            clock.advance(AFTER_S / 5)

    async def outcomes(self) -> dict[str, int]:
        """How the message ended, and whether it is open, the others left out."""
        await self.settled()
        books = await self.pusher.books()
        assert books.distinct == books.ended + books.open
        counts = {**books.counts, "open": books.open}
        counts["handled"] = counts.get("handled", 0) - self.others
        counts["distinct"] -= self.others
        return {name: count for name, count in counts.items() if count}

    @property
    def answers(self) -> list[int]:
        return [worker.answers for worker in self.workers]


@pytest.fixture
async def room(redis_url: str) -> AsyncIterator[Room]:
    async with claimants(redis_url, 4) as all_of_them:
        yield Room(all_of_them)


async def is_out(claim: Claim, room: Room) -> bool:
    """Whether the entry's home has forgotten it."""
    home = await room.pusher.redis.execute("HGET", claim.home, claim.field)
    return home is not None and claim.holder_in(home) == b""


@SEQS
async def test_what_is_given_back_is_nobodys_in_open_also_when_told_again(room: Room, seq: int | None) -> None:
    claim, *_ = await room.heard(seq)
    token = claim.token
    await room.push_out(seq)
    assert await is_out(claim, room)
    await room.workers[0].claims.effect(claim)
    room.workers[0].give_back()
    await room.settled()
    call = script("entry_release")
    command = call.command(claim.home, BUCKET.open, claim.field, token, nobody_of(token))
    assert [await room.pusher.redis.run(call, command) for _ in range(2)] == [1, 1]
    (kept, place) = await room.pusher.redis.execute("HGETALL", BUCKET.open)
    assert (kept, place[:1]) == (nobody_of(token), b"c"), "the effect that was not sent is taken back"


@SEQS
async def test_who_gave_it_back_answers_it_where_nobody_else_can(room: Room, seq: int | None) -> None:
    one = room.workers[0]
    await one.hear(seq)
    await room.push_out(seq)
    one.give_back()
    await room.settled()
    await one.look()
    await one.answer()
    assert room.answers == [1, 0, 0]
    assert await room.outcomes() == {"distinct": 1, "handled": 1}


@SEQS
@pytest.mark.parametrize("seen_before", [True, False], ids=["seen before", "not seen before"])
async def test_who_stands_by_takes_what_was_given_back(room: Room, seq: int | None, *, seen_before: bool) -> None:
    one, two, _ = room.workers
    await room.heard(seq)
    if seen_before:
        await two.look()
    await room.push_out(seq)
    one.give_back()
    await room.settled()
    await two.look()
    await two.answer()
    await one.look()
    await one.answer()
    assert room.answers == [0, 1, 0]
    assert len(one.standby) == len(two.standby) == 0
    assert await room.outcomes() == {"distinct": 1, "handled": 1}


@SEQS
async def test_who_stands_by_takes_what_a_dead_worker_held(room: Room, seq: int | None) -> None:
    one, two, _ = room.workers
    await room.heard(seq)
    await room.push_out(seq)
    await two.look()
    assert two.in_hand == [], "its holder lives"
    one.lapse()
    await two.look()
    await two.answer()
    await one.answer()
    assert room.answers == [0, 1, 0]
    assert await room.outcomes() == {"distinct": 1, "handled": 1}


async def test_a_claim_asked_again_after_it_was_pushed_out_is_held_and_counted_once(room: Room) -> None:
    one = room.workers[0]
    claim = await one.hear(5)
    await room.push_out(5)
    assert await one.claimant.take(claim) is WON
    assert await room.outcomes() == {"distinct": 1, "open": 1}
    await one.answer()
    assert await room.outcomes() == {"distinct": 1, "handled": 1}


@SEQS
async def test_what_has_begun_is_not_taken(room: Room, seq: int | None) -> None:
    one, two, _ = room.workers
    claim, theirs, _ = await room.heard(seq)
    await room.push_out(seq)
    await one.claims.effect(claim)
    one.lapse()
    await two.look()
    assert (theirs.holder, two.in_hand) == (b"e" + claim.token, [])
    theirs.holder = b"c" + claim.token
    assert await two.claims.take_over(theirs) is LOST
    await room.swept()
    assert await room.outcomes() == {"distinct": 1, "dead:sent_unknown": 1}


@SEQS
async def test_what_another_took_and_ended_is_not_claimed_anew_by_who_had_given_it_back(
    room: Room, seq: int | None
) -> None:
    one, two, _ = room.workers
    claim, *_ = await room.heard(seq)
    one.give_back()
    await room.settled()
    await two.look()
    await two.answer()
    await room.settled()
    await room.push_out(seq)
    assert await is_out(claim, room)
    await one.look()
    assert (one.in_hand, len(one.standby)) == ([], 0)
    assert room.answers == [0, 1, 0]
    assert await room.outcomes() == {"distinct": 1, "handled": 1}


@SEQS
async def test_who_saw_another_take_it_does_not_claim_it_anew_where_redis_forgets_all(
    room: Room, seq: int | None
) -> None:
    one, two, _ = room.workers
    await room.heard(seq)
    one.give_back()
    await room.settled()
    await two.look()
    await one.look()
    await two.answer()
    await room.settled()
    await room.pusher.redis.execute("FLUSHALL")
    await one.look()
    assert (one.in_hand, room.answers) == ([], [0, 1, 0])


@SEQS
async def test_what_was_given_back_and_whose_home_is_gone_is_taken_where_open_knows_it(
    room: Room, seq: int | None
) -> None:
    one = room.workers[0]
    claim, *_ = await room.heard(seq)
    one.give_back()
    await room.settled()
    await room.pusher.redis.execute("DEL", claim.home)
    await one.look()
    await one.answer()
    assert await room.outcomes() == {"distinct": 1, "handled": 1}, "it was not claimed a second time"


@SEQS
async def test_what_nobody_can_answer_ends_though_its_worker_lives(room: Room, seq: int | None) -> None:
    await room.workers[0].hear(seq)
    await room.push_out(seq)
    room.workers[0].give_back()
    await room.settled()
    assert await room.outcomes() == {"distinct": 1, "open": 1}
    await room.swept()
    assert await room.outcomes() == {"distinct": 1, "dead:holder_lost": 1}


@SEQS
async def test_a_take_over_is_the_takers_when_asked_again_and_nobody_elses(room: Room, seq: int | None) -> None:
    one, two, three = room.workers
    claim, second, third = await room.heard(seq)
    one.give_back()
    await room.settled()
    assert await two.claims.look([second]) == await three.claims.look([third]) == [True]
    # Between the look and the taking.
    await room.push_out(seq)
    assert await is_out(claim, room)
    assert [await two.claims.take_over(second) for _ in range(2)] == [WON, WON]
    assert await three.claims.take_over(third) is LOST
    # The reply was lost: the next look says whose it is.
    assert await two.claims.look([second]) == [True]
    assert second.holder == b"c" + second.token
    await two.claims.effect(second)
    assert await two.claims.take_over(second) is WON, "asked again late, it changes nothing"
    assert (await room.pusher.redis.execute("HGET", BUCKET.open, second.token))[:1] == b"e"


async def test_a_foreign_value_in_its_home_changes_nothing_of_what_is_open(room: Room) -> None:
    one, two, _ = room.workers
    claim, second, _ = await room.heard(5)
    one.give_back()
    await room.settled()
    assert await two.claims.look([second]) == [True]
    before = await room.pusher.redis.execute("HGETALL", BUCKET.open)
    await room.pusher.redis.execute("SET", claim.home, "foreign")
    assert await two.claims.look([second]) == [False]
    assert await two.claims.take_over(second) is UNKNOWN
    assert await room.pusher.redis.execute("HGETALL", BUCKET.open) == before
    await room.pusher.redis.execute("DEL", claim.home)
    assert await two.claims.take_over(second) is WON


@pytest.mark.parametrize("name", ["entry_release", "entry_take"])
async def test_a_foreign_value_in_the_place_of_open_changes_nothing_of_the_home(room: Room, name: str) -> None:
    claim, *_ = await room.heard(5)
    home = await room.pusher.redis.execute("HGET", claim.home, claim.field)
    await room.pusher.redis.execute("SET", BUCKET.open, "foreign")
    call = script(name)
    command = call.command(claim.home, BUCKET.open, claim.field, claim.token, nobody_of(claim.token))
    with pytest.raises(Exception, match="WRONGTYPE"):
        await room.pusher.redis.run(call, command)
    assert await room.pusher.redis.execute("HGET", claim.home, claim.field) == home


workers = st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.sampled_from(["give_back", "answer", "look", "lapse"]), workers),
    st.just(("push_out", -1)),
    st.just(("settle", -1)),
)


@pytest.mark.parametrize(("seq", "examples"), [(5, 100), (None, 20)], ids=["by sequence", "by content"])
def test_in_every_order_of_events_a_message_is_answered_at_most_once_and_has_one_outcome(
    redis_url: str, seq: int | None, examples: int
) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(way=st.lists(steps, max_size=16))
    def every(way: list[tuple[str, int]]) -> None:
        asyncio.run(lived(redis_url, seq, way))

    every()


async def lived(url: str, seq: int | None, way: list[tuple[str, int]]) -> None:
    async with claimants(url, 4) as all_of_them:
        room = Room(all_of_them)
        await room.pusher.redis.execute("FLUSHALL")
        await room.heard(seq)
        for name, number in way:
            step: Any = {"push_out": lambda: room.push_out(seq), "settle": room.settled}.get(name)
            waited = (step or getattr(room.workers[number], name))()
            if asyncio.iscoroutine(waited):
                await waited
        for worker in room.workers:
            await worker.answer()
        await room.settled()
        for worker in room.workers:
            room.lapses.dead.add(worker.claimant.epoch.epoch)
        await room.swept()
        ended = await room.outcomes()
        assert ended.pop("distinct") == 1
        assert ended == ({"handled": 1} if sum(room.answers) else {"dead:holder_lost": 1}), way
        assert sum(room.answers) <= 1

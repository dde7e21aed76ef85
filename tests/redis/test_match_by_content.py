"""Ends without sequences: reports matched by content, and joined with ends that have one."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pallas.claim import Claim, Verdict
from pallas.keys import encode, notice_space, private_space
from tests.support.claimants import GROUP, KEYS, TIME_S, Claimant, claimants, said
from tests.support.identity_model import Model, Report

WON, LOST = Verdict.WON, Verdict.LOST
BUCKET = KEYS.bucket(encode(GROUP))


@pytest.fixture
async def trio(redis_url: str) -> AsyncIterator[list[Claimant]]:
    async with claimants(redis_url, 3) as fleet:
        yield fleet


async def grown_plain(shard: Claimant, group: str = GROUP) -> None:
    """Let the group be known as one with an end that reports no sequences."""
    await shard.report(None, user="first", text="plain", group=group)


async def test_two_reports_without_sequences_are_one_message(trio: list[Claimant]) -> None:
    one, other, _ = trio
    assert await one.report(None) is WON
    assert await other.report(None) is LOST


async def test_an_honest_repeat_in_the_same_second_is_another_message(trio: list[Claimant]) -> None:
    one, other, third = trio
    assert [await one.report(None) for _ in range(3)] == [WON, WON, WON]
    assert [await other.report(None) for _ in range(3)] == [LOST, LOST, LOST]
    # Whoever saw one more than all others tells of a message that they missed.
    assert [await third.report(None) for _ in range(4)] == [LOST, LOST, LOST, WON]


async def test_a_report_told_again_by_the_same_account_is_a_replay(trio: list[Claimant]) -> None:
    one, other, _ = trio
    assert await one.report(None, mark="1:900") is WON
    assert await one.report(None, mark="1:900") is LOST
    assert await other.report(None, mark="2:17") is LOST
    assert await other.report(None, mark="2:17") is LOST
    assert (await one.books()).distinct == 1


@pytest.mark.parametrize(
    "about",
    [{"user": "8"}, {"text": "hallo"}, {"time_s": TIME_S + 1}, {"time_s": TIME_S - 1}, {"group": "5"}],
    ids=lambda about: next(iter(about)),
)
async def test_another_person_text_second_or_group_is_another_message(
    trio: list[Claimant], about: dict[str, Any]
) -> None:
    one, other, _ = trio
    assert await one.report(None) is WON
    assert await other.report(None, **about) is WON


async def test_a_group_is_known_as_plain_from_its_first_report_without_a_sequence(trio: list[Claimant]) -> None:
    one, _, _ = trio
    await one.report(1)
    assert await one.redis.execute("EXISTS", BUCKET.plain) == 0
    await one.report(None, text="else")
    assert await one.redis.execute("ZRANGE", BUCKET.plain, 0, -1) == [BUCKET_SPACE.encode()]
    claim = one.claim(2)
    await one.take(claim)
    assert claim.body == said("7", "hello"), "from now on a sequence alone does not do"


BUCKET_SPACE = encode(GROUP)


async def test_a_plain_group_stays_known_as_long_as_it_is_one_and_no_longer(trio: list[Claimant]) -> None:
    one, _, _ = trio
    now = int((await one.redis.execute("TIME"))[0])
    # Another group of its bucket, whose last end without sequences left long ago.
    await one.redis.execute("ZADD", BUCKET.plain, now + 600, BUCKET_SPACE, now - 1, "5")
    await one.redis.execute("EXPIRE", BUCKET.plain, 600)
    await one.report(None, text="again", time_s=now)
    assert await one.redis.execute("TTL", BUCKET.plain) == 86_400
    assert await one.redis.execute("ZRANGE", BUCKET.plain, 0, -1) == [BUCKET_SPACE.encode()]
    assert int(await one.redis.execute("ZSCORE", BUCKET.plain, BUCKET_SPACE)) >= now + 86_400


async def test_a_group_whose_last_end_without_sequences_left_a_day_ago_is_claimed_by_sequence_again(
    trio: list[Claimant],
) -> None:
    one, other, _ = trio
    await one.report(None, text="the last of its kind")
    now = int((await one.redis.execute("TIME"))[0])
    await one.redis.execute("ZADD", BUCKET.plain, now - 1, BUCKET_SPACE, now + 86_400, "5")
    claim = other.claim(2)
    assert await other.take(claim) is WON
    assert claim.body is None, "contents are compared for the sake of another group of the bucket, and not here"


@pytest.mark.parametrize("space", [private_space("10001", "7"), notice_space(GROUP)], ids=["private", "notices"])
async def test_private_chats_and_notices_are_matched_by_content_and_never_marked(
    trio: list[Claimant], space: str
) -> None:
    one, other, _ = trio
    assert await one.report(None, space=space) is WON
    assert await other.report(None, space=space) is LOST
    assert await one.redis.execute("EXISTS", KEYS.bucket(space).plain) == 0


ORDERS = sorted(set(itertools.permutations(["s1", "s2", "p"])))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_ends_with_and_without_sequences_agree_in_any_order(trio: list[Claimant], order: list[str]) -> None:
    await grown_plain(trio[0])
    reporting = {"s1": (trio[0], 500), "s2": (trio[1], 500), "p": (trio[2], None)}
    verdicts = [await reporting[name][0].report(reporting[name][1]) for name in order]
    assert verdicts == [WON, LOST, LOST]
    # And each told again finds the same.
    for name in order:
        if name != "p":
            assert await reporting[name][0].report(reporting[name][1]) is LOST
    assert (await trio[0].books()).distinct == 2


@pytest.mark.parametrize("order", sorted(set(itertools.permutations(["s", "s", "p", "p"]))), ids="-".join)
async def test_twins_are_two_whatever_the_order(trio: list[Claimant], order: list[str]) -> None:
    await grown_plain(trio[0])
    seqs = iter([500, 501])
    verdicts = [await (trio[0].report(next(seqs)) if kind == "s" else trio[1].report(None)) for kind in order]
    assert verdicts.count(WON) == 2
    # A third end, with sequences, knows both by the pointers or entries that were left.
    assert [await trio[2].report(seq) for seq in (500, 501)] == [LOST, LOST]


async def test_two_sequences_are_two_messages_though_text_and_second_agree(trio: list[Claimant]) -> None:
    one, other, third = trio
    await grown_plain(one)
    assert await one.report(500) is WON
    assert await other.report(501) is WON
    assert [await third.report(None) for _ in range(3)] == [LOST, LOST, WON]


async def test_a_winner_by_content_can_act_and_end(trio: list[Claimant]) -> None:
    one, other, third = trio
    claim = one.claim(None)
    assert await one.take(claim) is WON
    assert await other.report(None) is LOST
    await one.claims.effect(claim)
    assert await one.take(claim) is WON
    one.handled(claim)
    await one.settled()
    books = await one.books()
    assert (books.counts, books.open) == ({"distinct": 1, "handled": 1}, 0)
    assert await third.report(500) is LOST, "a sequenced report finds what is done as well"


async def test_a_winner_by_sequence_in_a_plain_group_can_act_and_end(trio: list[Claimant]) -> None:
    one, other, _ = trio
    await grown_plain(other)
    claim = one.claim(500)
    assert await one.take(claim) is WON
    assert await other.report(None) is LOST
    await one.claims.effect(claim)
    one.handled(claim)
    await one.settled()
    assert (await one.books()).counts == {"distinct": 2, "handled": 1}


async def test_a_sequenced_winner_asked_again_after_the_group_became_plain_has_still_won(trio: list[Claimant]) -> None:
    one, other, _ = trio
    claim = one.claim(500)
    assert await one.take(claim) is WON
    await grown_plain(other)
    assert await one.take(claim) is WON
    assert (await one.books()).distinct == 2


@pytest.mark.parametrize("base", [TIME_S, TIME_S + 16, TIME_S + 3600], ids=["slot's start", "next slot", "next hour"])
@pytest.mark.parametrize("gap", [-3, -2, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("seq", [None, 500], ids=["plain", "sequenced"])
async def test_clocks_may_differ_by_the_tolerance_across_slots_and_hours(
    trio: list[Claimant], base: int, gap: int, seq: int | None
) -> None:
    one, other, _ = trio
    await grown_plain(one)
    assert await one.report(None, time_s=base) is WON
    verdict = await other.report(seq, time_s=base + gap, tolerance_s=2)
    assert verdict is (LOST if abs(gap) <= 2 else WON)


async def test_the_nearest_in_time_is_the_same(trio: list[Claimant]) -> None:
    one, other, third = trio
    for second in (24, 19, 10):
        assert await one.report(None, time_s=TIME_S + second) is WON
    # 21 is nearer to 19 than to 24, which was there first.
    assert await other.report(None, time_s=TIME_S + 21, tolerance_s=10) is LOST
    assert await other.report(None, time_s=TIME_S + 19, tolerance_s=0) is WON, "19 was observed, so this is another"
    assert await third.report(None, time_s=TIME_S + 24, tolerance_s=0) is LOST


async def test_content_keys_live_one_hour_longer_than_the_memory(trio: list[Claimant]) -> None:
    one, _, _ = trio
    await one.report(None)
    await one.report(500, text="more")
    assert await one.redis.execute("TTL", BUCKET.hour(TIME_S)) == 86_400 + 3600
    assert await one.redis.execute("TTL", BUCKET.block(500)) == 90_720


async def test_one_person_cannot_grow_an_entry_without_end(trio: list[Claimant]) -> None:
    one, _, _ = trio
    verdicts = [await one.report(None) for _ in range(300)]
    assert set(verdicts) == {WON}
    values = await one.redis.execute("HVALS", BUCKET.hour(TIME_S))
    assert max(map(len, values)) <= 2048
    assert (await one.books()).distinct == 300


async def test_what_a_flood_of_twins_pushed_out_still_ends_in_the_books(trio: list[Claimant]) -> None:
    one, _, _ = trio
    claims = [one.claim(None) for _ in range(300)]
    for claim in claims:
        assert await one.take(claim) is WON
    for claim in claims:
        one.handled(claim)
    await one.settled()
    books = await one.books()
    assert (books.counts, books.open) == ({"distinct": 300, "handled": 300}, 0)


async def test_many_shards_at_once_agree_on_the_number(redis_url: str) -> None:
    async with claimants(redis_url, 6) as fleet:
        reports = [shard.report(None, text=f"t{number % 4}") for shard in fleet for number in range(20)]
        verdicts = await asyncio.gather(*reports)
        # Five of each of four texts, seen by all six.
        assert verdicts.count(WON) == 20


SHARDS = 4
# The seconds around the end of a slot, which is also the end of an hour.
PHYSICAL = st.tuples(st.sampled_from(["7", "8"]), st.sampled_from(["+1", "hi"]), st.integers(-2, 1))
HAS_SEQUENCES = st.lists(st.booleans(), min_size=SHARDS, max_size=SHARDS)


def reports_of(data: st.DataObject, has_seq: list[bool]) -> tuple[int, list[Report]]:
    """Some messages, each reported by some shards, in any order, some reports told twice."""
    physical = data.draw(st.lists(PHYSICAL, min_size=1, max_size=8), label="messages")
    reports = [
        Report(shard, f"{shard}:{number}", user, text, TIME_S + second, 900 + number if has_seq[shard] else None)
        for number, (user, text, second) in enumerate(physical)
        for shard in sorted(data.draw(st.sets(st.integers(0, SHARDS - 1), min_size=1), label=f"who saw {number}"))
    ]
    again = data.draw(st.lists(st.sampled_from(reports), max_size=4), label="told twice")
    return len(physical), data.draw(st.permutations(reports + again), label="order")


async def decide(url: str, group: str, reports: list[Report], *, plain_first: bool, tolerance_s: int = 0) -> list[bool]:
    """Redis's verdicts, report by report. A report told twice asks with the token of its first time."""
    async with claimants(url, SHARDS) as fleet:
        if plain_first:
            await grown_plain(fleet[0], group)
        claims: dict[Report, Claim] = {}
        verdicts = []
        for report in reports:
            shard = fleet[report.shard]
            claim = claims.get(report)
            if claim is None:
                claim = claims[report] = shard.claim(
                    report.seq,
                    user=report.user,
                    time_s=report.time_s,
                    mark=report.mark,
                    group=group,
                    tolerance_s=tolerance_s,
                )
            verdicts.append(await shard.take(claim, report.user, report.text) is WON)
        return verdicts


GROUPS = itertools.count(1)
"""The server is emptied before a test, not before each of its examples."""
AGAINST_THE_MODEL = settings(
    max_examples=300,
    deadline=None,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@AGAINST_THE_MODEL
@given(data=st.data(), has_seq=HAS_SEQUENCES, tolerance_s=st.integers(0, 2))
def test_redis_decides_as_the_model_does(
    redis_url: str, data: st.DataObject, has_seq: list[bool], tolerance_s: int
) -> None:
    _, reports = reports_of(data, has_seq)
    model = Model(tolerance_s)
    expected = [model.wins(report) for report in reports]
    verdicts = asyncio.run(
        decide(redis_url, f"drawn-{next(GROUPS)}", reports, plain_first=not all(has_seq), tolerance_s=tolerance_s)
    )
    assert verdicts == expected


@AGAINST_THE_MODEL
@given(data=st.data(), has_seq=HAS_SEQUENCES)
def test_nothing_is_handled_twice_and_no_message_that_one_shard_told_apart_is_lost(
    redis_url: str, data: st.DataObject, has_seq: list[bool]
) -> None:
    physical, reports = reports_of(data, has_seq)
    verdicts = asyncio.run(decide(redis_url, f"drawn-{next(GROUPS)}", reports, plain_first=not all(has_seq)))
    winners = {report for report, won in zip(reports, verdicts, strict=True) if won}
    seen_by = Counter(report.shard for report in set(reports))
    assert max(seen_by.values()) <= len(winners) <= physical
    if all(has_seq):
        assert len(winners) == physical


@AGAINST_THE_MODEL
@given(data=st.data(), tolerance_s=st.integers(0, 1))
def test_redis_decides_as_the_model_does_where_shards_have_ends_of_both_kinds(
    redis_url: str, data: st.DataObject, tolerance_s: int
) -> None:
    sequenced = data.draw(st.lists(st.booleans(), min_size=24, max_size=24), label="which reports have a sequence")
    _, drawn = reports_of(data, [False] * SHARDS)
    numbers = {report.mark: int(report.mark.partition(":")[2]) for report in drawn}
    reports = [
        replace(report, seq=900 + numbers[report.mark])
        if sequenced[(numbers[report.mark] * SHARDS + report.shard) % len(sequenced)]
        else report
        for report in drawn
    ]
    model = Model(tolerance_s)
    expected = [model.wins(report) for report in reports]
    verdicts = asyncio.run(
        decide(redis_url, f"drawn-{next(GROUPS)}", reports, plain_first=True, tolerance_s=tolerance_s)
    )
    assert verdicts == expected

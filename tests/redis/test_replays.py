"""The same report again: later, elsewhere, after a restart; with a sequence, with an id, with neither."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from pallas.app import App
from pallas.clock import SystemClock
from pallas.context import Context, NoticeContext
from pallas.model import Message, Outcome, Reason
from pallas.onebot.ends import End
from pallas.onebot.wire import parse
from shard.conduct import Fault
from shard.facts import bots_from, bots_json
from shard.matching import Standing
from shard.redis_view import RedisView
from tests.support.claimants import claimants
from tests.support.matchers import Matcher
from tests.support.shards import assert_balanced, group_message, poke, private_message, shards
from tests.support.waiting import wait_until

KINDS: dict[str, dict[str, Any]] = {"sequenced": {"seq": 500}, "by id": {}}
NO_IDS: dict[str, dict[str, Any]] = {"0": {"message_id": 0}, "-1": {"message_id": -1}, "none": {"message_id": None}}


@pytest.fixture
async def pair(redis_url: str) -> AsyncIterator[list[Matcher]]:
    async with claimants(redis_url, 2) as found:
        yield [Matcher(one) for one in found]


def heard(bot: str, text: str = "hi", **about: Any) -> Message:
    """A report as the parser reads it."""
    event = group_message(bot, text, at=1_800_000_000, **{"mid": 41, **about})
    message = parse(orjson.dumps(event), bot_id=bot, end=End.UNKNOWN)
    assert isinstance(message, Message)
    return message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after_s", [0, 10, 119, 130, 420, 599])
async def test_a_replay_is_one_however_late_it_comes(pair: list[Matcher], kind: str, after_s: int) -> None:
    one, _ = pair
    assert await one.report(heard("101", **KINDS[kind]), now=0.0)
    # Others speak meanwhile, so that what is old enough is forgotten.
    assert await one.report(heard("101", "other", seq=501 if kind == "sequenced" else None, mid=42), now=after_s)
    assert not await one.report(heard("101", **KINDS[kind]), now=float(after_s))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_replay_at_another_worker_is_one(pair: list[Matcher], kind: str) -> None:
    one, other = pair
    assert await one.report(heard("101", **KINDS[kind]))
    assert not await other.report(heard("101", **KINDS[kind]))
    assert not await other.report(heard("101", **KINDS[kind]))
    # And what the account reports there first is a message.
    assert await other.report(heard("101", **{**KINDS[kind], "seq": None if kind == "by id" else 501}, mid=43))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_replay_after_its_worker_was_started_anew_is_one(pair: list[Matcher], kind: str) -> None:
    one, _ = pair
    assert await one.report(heard("101", **KINDS[kind]))
    one.restart()
    assert not await one.report(heard("101", **KINDS[kind]))
    assert not await one.report(heard("102", mid=77, **KINDS[kind])), "a late copy of another account is none either"
    assert not await one.report(heard("101", **KINDS[kind]))


async def test_a_twin_that_was_taken_for_a_copy_after_a_restart_is_handled_once_the_replay_shows_it(
    pair: list[Matcher],
) -> None:
    one, _ = pair
    assert await one.report(heard("101", mid=2))
    one.restart()
    # Nobody can know yet that this is no late copy.
    assert not await one.report(heard("101", mid=1))
    assert await one.report(heard("101", mid=2))
    assert not await one.report(heard("101", mid=1))


@pytest.mark.parametrize("ids", NO_IDS.values(), ids=NO_IDS)
async def test_without_an_id_the_sequence_tells_a_replay(pair: list[Matcher], ids: dict[str, Any]) -> None:
    one, other = pair
    first = heard("101", seq=500, **ids)
    assert (first.message_id, first.seq) == ("", 500)
    assert await one.report(first)
    assert not await one.report(heard("101", seq=500, **ids))
    assert not await other.report(heard("101", seq=500, **ids))
    one.restart()
    assert not await one.report(heard("101", seq=500, **ids))


@pytest.mark.parametrize("ids", NO_IDS.values(), ids=NO_IDS)
async def test_with_neither_each_report_counts_as_a_message_of_its_own(
    pair: list[Matcher], ids: dict[str, Any]
) -> None:
    # The limit of what can be known: an honest repeat looks the same. The self-check names such an end.
    one, other = pair
    assert [await one.report(heard("101", **ids)) for _ in range(20)] == [True] * 20
    assert [await other.report(heard("102", **ids)) for _ in range(20)] == [False] * 20
    one.conducts["101"].judge()
    assert Fault.NO_MESSAGE_ID in one.conducts["101"].faults


async def test_one_id_for_two_texts_is_no_replay_anywhere(pair: list[Matcher]) -> None:
    one, other = pair
    assert await one.report(heard("101", "one", mid=7))
    assert await other.report(heard("101", "two", mid=7))
    assert not await other.report(heard("101", "one", mid=7))


async def test_a_copy_that_brings_the_sequence_is_told_of_once(pair: list[Matcher]) -> None:
    one, other = pair
    report = one.match(heard("101", mid=1), 0.0)
    assert report is not None
    assert await one.wins(report)
    learned = one.match(heard("102", seq=500, mid=2), 0.0)
    assert learned is not None
    assert learned.standing is Standing.LEARNED
    assert not await one.wins(learned)
    assert one.match(heard("103", seq=500, mid=3), 0.0) is None
    # From now on the entry is known by its sequence: another one is another message, the same one is not.
    assert not await other.report(heard("104", seq=500, mid=4))
    assert await other.report(heard("104", seq=501, mid=5))


async def test_a_sequence_that_others_gave_to_another_twin_is_a_message_of_its_own(pair: list[Matcher]) -> None:
    one, other = pair
    assert await one.report(heard("101", mid=1))
    assert not await other.report(heard("201", mid=9))
    # Two workers join the only report without a sequence with different twins; both have been said.
    assert not await one.report(heard("102", seq=500, mid=2))
    assert await other.report(heard("202", seq=501, mid=8))
    assert not await one.report(heard("102", seq=501, mid=3))
    assert not await other.report(heard("202", seq=500, mid=7))
    assert not await one.report(heard("101", mid=4))
    assert not await other.report(heard("201", mid=6))
    # And a third, that one account told apart from both, is a third.
    assert await other.report(heard("201", mid=10))
    assert not await one.report(heard("101", mid=11))


async def test_twins_that_two_workers_joined_differently_stay_two_while_one_of_them_is_late_to_tell(
    pair: list[Matcher],
) -> None:
    one, other = pair
    assert await one.report(heard("101", mid=1))
    assert not await other.report(heard("201", mid=2))
    late = other.match(heard("202", seq=500, mid=3), 0.0)
    assert late is not None
    assert await other.report(heard("202", seq=501, mid=4))
    assert not await one.report(heard("102", seq=501, mid=5))
    # Two messages are known, and this worker has told of one: its second is the one that has no sequence yet.
    assert not await one.report(heard("102", seq=500, mid=6))
    assert not await other.wins(late)


def ping_bot() -> App:
    app = App("replays")

    @app.command("ping")
    async def ping(ctx: Context) -> str:
        return f"pong {ctx.args}"

    @app.notice("notify.poke")
    async def poked(_: NoticeContext) -> str:
        return "poked"

    return app


async def test_seven_minutes_are_not_too_old_and_25_hours_are(redis_url: str, tmp_path: Path) -> None:
    async with shards(redis_url, tmp_path, ping_bot()) as (shard,):
        recent, old = time.time() - 420, time.time() - 25 * 3600
        for at, mid in ((recent, 51), (old, 52)):
            for _ in range(2):
                shard.hear(group_message("10001", f"ping {mid}", mid=mid, at=at))
                await shard.quiet()
        assert shard.sent() == ["pong 51"]
        assert dict(shard.meters.refused) == {Reason.STALE: 2}
        assert dict(shard.meters.copies) == {Reason.REPLAY: 1}


async def test_a_first_copy_with_a_sequence_is_counted_as_a_copy(redis_url: str, tmp_path: Path) -> None:
    async with shards(redis_url, tmp_path, ping_bot()) as (shard,):
        now = time.time()
        shard.hear(group_message("10001", "ping 1", at=now))
        shard.hear(group_message("10002", "ping 1", seq=500, at=now))
        shard.hear(group_message("10003", "ping 1", seq=500, at=now))
        shard.hear(group_message("10001", "nothing", at=now))
        shard.hear(group_message("10002", "nothing", seq=501, at=now))
        await shard.quiet()
        assert shard.sent() == ["pong 1"]
        assert dict(shard.meters.copies) == {Reason.SAME_WORKER: 3}
        assert shard.meters.outcomes[Outcome.HANDLED, Reason.OK] == 1
        assert_balanced(shard.meters)


async def test_pokes_within_ten_seconds_are_kept_apart_by_whoever_saw_both(redis_url: str, tmp_path: Path) -> None:
    async with shards(redis_url, tmp_path, ping_bot(), ping_bot()) as (one, two):
        now = time.time()
        for offset in (0, 4, 8):
            one.hear(poke("10001", at=now - 20 + offset))
            await one.quiet()
        for offset in (1, 5, 9):
            two.hear(poke("10002", at=now - 20 + offset))
            await two.quiet()
            one.hear(poke("10003", at=now - 20 + offset + 1))
            await one.quiet()
        assert (one.sent() + two.sent()).count("poked") == 3
        # A fourth that only one account saw is a fourth.
        two.hear(poke("10002", at=now - 6))
        await wait_until(lambda: len(two.sent()) == 1, saying="the fourth poke is answered")


async def test_the_same_words_in_private_are_said_to_each_account(redis_url: str, tmp_path: Path) -> None:
    async with shards(redis_url, tmp_path, ping_bot(), ping_bot()) as (one, two):
        now = time.time()
        for shard, bots in ((one, ("10001", "10002")), (two, ("10003",))):
            for bot in bots:
                for _ in range(2):
                    shard.hear(private_message(bot, "ping 1", mid=77, at=now))
            await shard.quiet()
        assert (one.sent(), two.sent()) == (["pong 1", "pong 1"], ["pong 1"])
        assert one.meters.copies[Reason.REPLAY] == 2
        conduct = one.worker.roster.conducts["10001"]
        assert (conduct.without_seq, conduct.matched) == (0, 0)


async def test_how_an_end_behaves_is_shown_with_its_account(redis_url: str, tmp_path: Path) -> None:
    async with shards(redis_url, tmp_path, ping_bot()) as (shard,):
        worker, now = shard.worker, time.time()
        for number in range(20):
            shard.hear(group_message("10001", f"word {number}", seq=600 + number, at=now))
            shard.hear(group_message("10002", f"word {number}", mid=0, at=now))
        await shard.quiet()
        await worker.selfcheck.look()
        await worker.presence.refresh()
        view = RedisView(worker._redis, worker.keys, SystemClock(), name="test", purge_s=60)
        shown = bots_from(json.loads(json.dumps(bots_json(await view.bots()))))
        conduct = {row.self_id: row.conduct for row in shown}
        assert (conduct["10001"]["reports"], conduct["10001"]["matched"]) == (20, 20)
        assert (conduct["10001"]["faults"], conduct["10002"]["faults"]) == ([], ["no_message_id", "no_sequence"])
        assert (conduct["10002"]["without_seq"], conduct["10002"]["without_id"]) == (20, 20)

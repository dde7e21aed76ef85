"""A clock that is off is found out by what other workers were told, also where its account is alone on its worker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pallas.app import App
from pallas.claim import SLOT_S
from pallas.context import Context
from shard.conduct import Fault
from tests.support.shards import Shard, group_message, shards

RIGHT, ALSO_RIGHT, PLAIN = "10001", "10002", "10003"


def bot() -> App:
    app = App("clocks")

    @app.command("ping")
    async def ping(ctx: Context) -> str:
        return f"pong {ctx.args}"

    return app


async def learn(fleet: list[Shard]) -> None:
    """What each worker does on its timers: judge the ends, tell what they ask for, and hear of it."""
    for shard in (*fleet, *fleet):
        await shard.worker.selfcheck.look()
        await shard.worker.terms.beat()


async def say(fleet: list[Shard], number: int, off_s: int, *, first: int) -> None:
    """One message: two accounts with sequences on the first worker, one without on the second whose clock is off."""
    one, two = fleet
    # Not at the edge of a slot: what lies beyond it is not looked at, which only makes one in sixteen count less.
    now = int(time.time()) // SLOT_S * SLOT_S - SLOT_S // 2

    async def rightly() -> None:
        for bot_id in (RIGHT, ALSO_RIGHT):
            one.hear(group_message(bot_id, f"ping {number}", seq=number, at=now))
        await one.quiet()

    if first == 0:
        await rightly()
    two.hear(group_message(PLAIN, f"ping {number}", at=now + off_s))
    await two.quiet()
    if first:
        await rightly()


def faults(fleet: list[Shard]) -> dict[str, frozenset[Fault]]:
    conducts = {bot_id: conduct for shard in fleet for bot_id, conduct in shard.worker.roster.conducts.items()}
    return {bot_id: conduct.faults for bot_id, conduct in conducts.items() if Fault.CLOCK_OFF in conduct.faults}


@pytest.mark.parametrize(("off_s", "first"), [(-1, 0), (1, 1)], ids=["told after the others", "told before the others"])
async def test_a_plain_account_alone_on_its_worker_with_a_clock_that_is_off_is_found_out(
    redis_url: str, tmp_path: Path, off_s: int, first: int
) -> None:
    async with shards(redis_url, tmp_path, bot(), bot()) as fleet:
        for shard, bots in zip(fleet, ((RIGHT, ALSO_RIGHT), (PLAIN,)), strict=True):
            for bot_id in bots:
                shard.connect(bot_id)
        await learn(fleet)
        for number in range(1, 9):
            await say(fleet, number, off_s, first=first)
        await learn(fleet)
        assert [shard.worker.terms.terms.tolerance_s for shard in fleet] == [1, 1]
        before = sum(len(shard.sent()) for shard in fleet)
        for number in range(9, 100):
            await say(fleet, number, off_s, first=first)
            if number % 10 == 0:
                await learn(fleet)
        assert sum(len(shard.sent()) for shard in fleet) - before == 91, "each of them is answered once from then on"
        conducts = [conduct for shard in fleet for conduct in shard.worker.roster.conducts.values()]
        assert any(conduct.is_off for conduct in conducts), "it stays off, and known as off"


async def test_people_who_repeat_themselves_after_a_second_make_no_clock_wrong(redis_url: str, tmp_path: Path) -> None:
    async with shards(redis_url, tmp_path, bot(), bot()) as fleet:
        one, two = fleet
        one.connect(RIGHT)
        # From its first report on, contents are compared everywhere.
        two.hear(group_message(PLAIN, "ping 0"))
        await two.quiet()
        await learn(fleet)
        now = int(time.time()) - 300
        for number in range(1, 101):
            for twin in (0, 1):
                at = now + 2 * number + twin
                order = ((one, RIGHT, 2 * number + twin), (two, PLAIN, None))
                for shard, bot_id, seq in order if number % 2 else reversed(order):
                    shard.hear(group_message(bot_id, f"ping {number}", seq=seq, at=at))
                    await shard.quiet()
        await learn(fleet)
        assert faults(fleet) == {}
        assert [shard.worker.terms.terms.tolerance_s for shard in fleet] == [0, 0]
        assert sum(len(shard.sent()) for shard in fleet) == 201


async def test_a_person_who_says_one_thing_each_second_makes_no_clock_wrong_where_a_report_is_missing_now_and_then(
    redis_url: str, tmp_path: Path
) -> None:
    async with shards(redis_url, tmp_path, bot(), bot()) as fleet:
        one, two = fleet
        now = int(time.time()) - 300
        for number in range(200):
            for shard, bot_id in ((one, RIGHT), (two, PLAIN)):
                if bot_id == PLAIN or number % 20:
                    shard.hear(group_message(bot_id, "ping again", at=now + number))
                    await shard.quiet()
        await learn(fleet)
        assert faults(fleet) == {}
        assert [shard.worker.terms.terms.tolerance_s for shard in fleet] == [0, 0]
        assert sum(len(shard.sent()) for shard in fleet) == 200

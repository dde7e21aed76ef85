"""Links on which nobody is any more: found by their pings, while other accounts answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deployment import ONEBOT_TOKEN
from tests.support.lab import lab
from tests.support.room import room
from tests.support.row_table import Record
from tests.support.waiting import wait_until

PING_S = 1.0


@pytest.mark.chaos
@pytest.mark.row("F41")
async def test_a_link_that_stands_open_and_nobody_reads_is_closed_and_others_answer(
    tmp_path: Path, redis_url: str, record: Record
) -> None:
    with lab(tmp_path, redis_url, PALLAS_PING_INTERVAL_S=str(PING_S)) as here:
        for shard in (0, 1):
            here.start(shard)
        here.wait_ready(0, 1)
        async with room(41, [here.url(0), here.url(1)], ONEBOT_TOKEN) as group:
            frozen, *rest = group.ends
            await group.say("ping before", 1)
            await group.rest()
            frozen.freeze()
            for seq in range(2, 22):
                # It still speaks, after the others: a line that is cut one way.
                await group.say(f"ping {seq}", seq, [*rest, frozen])
            await wait_until(lambda: len(here.events(0, "link.closed")) == 1, 4 * PING_S)
            assert here.events(0, "link.closed")[0]["bot_id"] == frozen.self_id
            for seq in range(22, 32):
                await group.say(f"ping {seq}", seq, rest)
            await group.rest()
            figures = await group.figures(here.rest(5.0))
            record("a half-open link, pings each second", figures)
            frozen.cut()
    # What its own worker gave it to send may have been sent: nobody can know, and nobody sends it again.
    assert figures.doubled == figures.stuck == figures.books == 0, figures
    assert figures.lost == figures.unknown, figures

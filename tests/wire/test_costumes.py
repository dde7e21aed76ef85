"""Four implementations, as each connects and reports, against one worker with the demo bot."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest

from pallas import demo
from pallas.model import Reason
from pallas.onebot.ends import End
from tests.support.mini_end import COSTUMES, MiniEnd
from tests.support.shards import assert_balanced, listening
from tests.support.waiting import wait_until

TOKEN = "t0ken-of-the-test"


@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize("costume", COSTUMES)
async def test_each_costume_is_let_in_recognised_and_answered(
    redis_url: str, tmp_path: Path, costume: str, token: str
) -> None:
    async with (
        listening(redis_url, tmp_path, demo.app, **({"onebot_token": token} if token else {})) as worker,
        MiniEnd(worker.url, costume, token=token) as end,
    ):
        await wait_until(lambda: worker.roster.get("900001"))
        account = worker.roster.get("900001")
        assert account is not None
        assert account.end is End(costume)
        await end.say("ping [1,2]&amp;3", 131_077)
        await end.say("ping [1,2]&amp;3", 131_078)
        await end.say("no ping", 131_079)
        await wait_until(lambda: len(end.sent) == 2)
        assert end.sent == ["pong [1,2]&amp;3"] * 2
        await wait_until(lambda: account.nickname == f"{costume} 900001")
        await wait_until(lambda: not (worker.meters.pending or len(worker.runner) or worker.claims.unsettled))
        assert {one["action"] for one in end.asked} == {"get_version_info", "get_login_info", "send_group_msg"}
        assert worker.meters.refused == {}
        assert_balanced(worker.meters)


async def test_all_costumes_at_once_are_one_answer_for_each_message(redis_url: str, tmp_path: Path) -> None:
    rng = random.Random(4)
    async with contextlib.AsyncExitStack() as stack:
        worker = await stack.enter_async_context(listening(redis_url, tmp_path, demo.app))
        ends = [
            await stack.enter_async_context(MiniEnd(worker.url, costume, f"90000{number}{copy}"))
            for number, costume in enumerate(COSTUMES, 1)
            for copy in range(2)
        ]
        # Pairs of equal texts within one second; each account tells them in an order of its own, across the wrap of
        # the sequence's 16 bits.
        texts = [f"ping {number // 2}" for number in range(60)]
        start = int(time.time()) - 30

        async def tell(end: MiniEnd) -> None:
            for number in rng.sample(range(60), 60):
                await end.say(texts[number], 65_510 + number, time=start + number // 8)

        await asyncio.gather(*(tell(end) for end in ends))
        await wait_until(lambda: sum(len(end.sent) for end in ends) >= 60)
        await wait_until(lambda: not (worker.meters.pending or len(worker.runner) or worker.claims.unsettled))
        answers = sorted(text for end in ends for text in end.sent)
        assert answers == sorted(text.replace("ping", "pong") for text in texts)
        assert worker.meters.copies == {Reason.SAME_WORKER: 60 * 7}
        assert_balanced(worker.meters)

"""Presence as whole workers keep it: right within a beat or a lease, whatever happens to links, workers or Redis."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pallas.clock import SystemClock
from pallas.keys import Keys
from pallas.redis import Redis
from shard.redis_view import RedisView
from shard.view import BotReason, BotRow, BotState
from shard.worker import Worker
from tests.support.deployment import ONEBOT_TOKEN, is_ready, site
from tests.support.load import QUICK, bot
from tests.support.mini_end import MiniEnd
from tests.support.opened import opened
from tests.support.shards import Shard, group_message, listening
from tests.support.waiting import block_until, wait_until

KEYS = Keys("pallas")
BOT = "10001"
BEAT_S, PURGE_S, LEASE_S = QUICK["presence_refresh_s"], QUICK["presence_purge_s"], QUICK["lease_s"]
SLACK_S = 1.0
"""For a busy machine."""


class Seen:
    """What others see of the accounts."""

    def __init__(self, client: Redis) -> None:
        self._view = RedisView(client, KEYS, SystemClock(), name="test", purge_s=PURGE_S)

    async def row(self, bot_id: str = BOT) -> BotRow | None:
        return next((row for row in await self._view.bots() if row.self_id == bot_id), None)

    async def becomes(self, state: BotState, within: float, *, shard: str = "", bot_id: str = BOT) -> BotRow:
        async def right() -> BotRow | None:
            row = await self.row(bot_id)
            return row if row and row.state is state and (not shard or row.shard_id == shard) else None

        found = await wait_until(right, within + SLACK_S, saying=f"{bot_id} is {state} {shard}")
        assert found is not None
        return found


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with opened(redis_url) as opening:
        yield opening


@pytest.fixture
def seen(client: Redis) -> Seen:
    return Seen(client)


@contextlib.asynccontextmanager
async def workers(url: str, folder: Path, number: int = 2) -> AsyncIterator[list[Shard]]:
    async with contextlib.AsyncExitStack() as stack:
        found: list[Worker] = [
            await stack.enter_async_context(listening(url, folder, bot(), **{**QUICK, "shard_id": shard}))
            for shard in range(number)
        ]
        shards = [Shard(worker) for worker in found]
        try:
            yield shards
        finally:
            for shard in shards:
                for end in shard.ends.values():
                    await end.close()


async def test_an_account_that_comes_and_goes_is_shown_at_once(redis_url: str, tmp_path: Path, seen: Seen) -> None:
    async with workers(redis_url, tmp_path, 1) as (one,):
        assert await seen.row() is None
        end = one.connect(BOT)
        row = await seen.becomes(BotState.ONLINE, 0)
        assert row.links == 1
        await end.close()
        await seen.becomes(BotState.OFFLINE, 0)


async def test_a_late_close_of_the_old_link_leaves_the_new_one_shown(
    redis_url: str, tmp_path: Path, seen: Seen
) -> None:
    async with workers(redis_url, tmp_path, 1) as (one,):
        old = one.connect(BOT)
        new = one.connect(BOT)
        await wait_until(lambda: links(seen, 2))
        key = (await seen.becomes(BotState.ONLINE, 0)).connection_key
        await old.close()
        await wait_until(lambda: links(seen, 1))
        assert (await seen.becomes(BotState.ONLINE, 0)).connection_key == key
        one.hear(group_message(BOT, "ping 1", seq=1))
        await wait_until(lambda: new.sent == ["pong 1"])


async def links(seen: Seen, number: int) -> bool:
    row = await seen.row()
    return row is not None and row.links == number


async def test_after_everything_was_deleted_it_is_whole_within_two_beats(
    redis_url: str, tmp_path: Path, seen: Seen, client: Redis
) -> None:
    async with workers(redis_url, tmp_path) as (one, other):
        for number in range(20):
            (one, other)[number % 2].connect(f"{20001 + number}")
        for number in range(20):
            await seen.becomes(BotState.ONLINE, 0, bot_id=f"{20001 + number}")
        await client.execute("FLUSHALL")
        # The lease is missed at its next renewal; the beat after that writes the accounts.
        for number in range(20):
            await seen.becomes(BotState.ONLINE, max(2 * BEAT_S, LEASE_S / 3 + BEAT_S), bot_id=f"{20001 + number}")


@pytest.mark.row("F42")
async def test_an_account_that_moves_to_another_worker_is_shown_there_at_once_and_stays(
    redis_url: str, tmp_path: Path, seen: Seen
) -> None:
    async with workers(redis_url, tmp_path) as (one, other):
        old = one.connect(BOT)
        await seen.becomes(BotState.ONLINE, 0, shard="0")
        new = other.connect(BOT)
        await seen.becomes(BotState.ONLINE, 0, shard="1")
        written = await shown_over(seen, 2.2 * BEAT_S)
        assert written == {"1"}, "while both links live, the older one takes nothing back"
        assert old.link.is_open, "closing it would only make the end come back"
        event = group_message(BOT, "ping 1", seq=1)
        old.hear(event)
        new.hear(event)
        await one.quiet()
        await other.quiet()
        assert len(old.sent) + len(new.sent) == 1
        await old.close()
        assert await shown_over(seen, 1.2 * BEAT_S) == {"1"}
        again = one.connect(BOT)
        await seen.becomes(BotState.ONLINE, 0, shard="0")
        await again.close()
        await seen.becomes(BotState.ONLINE, BEAT_S, shard="1")


async def shown_over(seen: Seen, seconds: float) -> set[str]:
    """The workers at which the account was shown in that time."""
    shown: set[str] = set()

    async def look() -> bool:
        row = await seen.row()
        shown.add(row.shard_id if row and row.state is BotState.ONLINE else "")
        return False

    with contextlib.suppress(AssertionError):
        await wait_until(look, seconds)
    return shown


async def test_a_worker_that_lapsed_shows_its_accounts_under_its_new_epoch(
    redis_url: str, tmp_path: Path, seen: Seen
) -> None:
    async with workers(redis_url, tmp_path) as (one, _):
        one.connect(BOT)
        before = await seen.becomes(BotState.ONLINE, 0, shard="0")
        lease = one.worker.lease
        await lease.release()
        assert (await seen.becomes(BotState.UNKNOWN, 0)).reason is BotReason.SHARD_LAPSED
        await wait_until(lease.is_held, LEASE_S + SLACK_S)
        after = await seen.becomes(BotState.ONLINE, BEAT_S, shard="0")
        assert after.epoch > before.epoch


async def test_accounts_of_a_killed_worker_are_unknown_with_its_lease_and_gone_after_the_purge(
    redis_url: str, tmp_path: Path, seen: Seen
) -> None:
    with site(tmp_path, PALLAS_REDIS_URL=redis_url, PALLAS_PRESENCE_PURGE_S=str(PURGE_S)) as here:
        processes = [
            here.start(f"worker-{shard}", "worker", "--shard-id", str(shard), "--app", "pallas.demo:app")
            for shard in range(2)
        ]
        ends: list[Any] = []
        for shard in range(2):
            await asyncio.to_thread(block_until, lambda shard=shard: is_ready(here.worker_url(shard)), 15)
        async with contextlib.AsyncExitStack() as stack:
            for shard in range(2):
                url = here.worker_url(shard).replace("http", "ws", 1) + "/onebot/v11/ws"
                ends.append(
                    await stack.enter_async_context(MiniEnd(url, self_id=f"1000{shard + 1}", token=ONEBOT_TOKEN))
                )
            await seen.becomes(BotState.ONLINE, 10, shard="0", bot_id="10001")
            await seen.becomes(BotState.ONLINE, 10, shard="1", bot_id="10002")
            processes[0].kill()
            row = await seen.becomes(BotState.UNKNOWN, LEASE_S, bot_id="10001")
            assert row.reason is BotReason.SHARD_LAPSED
            await seen.becomes(BotState.OFFLINE, PURGE_S * 1.25 + BEAT_S, bot_id="10001")
            await seen.becomes(BotState.ONLINE, 0, shard="1", bot_id="10002")

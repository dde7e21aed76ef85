"""Whoever was decided early waits for those before it in its group, but not for long."""

from __future__ import annotations

import asyncio

import pytest

from shard.turns import Turn


def three() -> tuple[Turn, Turn, Turn]:
    first = Turn(None)
    second = Turn(first)
    return first, second, Turn(second)


async def test_nobody_waits_where_nobody_is_before() -> None:
    first, second, _ = three()
    await first.come(10)
    first.over(started=True)
    await second.come(10)


@pytest.mark.parametrize("started", [True, False])
async def test_a_turn_comes_when_all_before_it_have_started_or_are_out(*, started: bool) -> None:
    first, second, third = three()
    waiting = asyncio.ensure_future(third.come(10))
    # Who has started had its own turn before; who is out may be so at once.
    for turn in (first, second) if started else (second, first):
        await asyncio.sleep(0)
        assert not waiting.done()
        turn.over(started=started)
    async with asyncio.timeout(5):
        await waiting


async def test_a_message_that_nobody_decides_holds_up_those_behind_it_for_the_limit_only() -> None:
    _, _, third = three()
    async with asyncio.timeout(5):
        await third.come(0.01)

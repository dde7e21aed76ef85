"""Whoever was decided early waits for those before it in its group, but not for long."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from shard.turns import Turn
from tests.support.waiting import wait_until


def row(length: int) -> list[Turn]:
    turns = [Turn(None)]
    while len(turns) < length:
        turns.append(Turn(turns[-1]))
    return turns


async def test_nobody_waits_where_nobody_is_before() -> None:
    first, second = row(2)
    came: list[int] = []
    first.come(10, lambda: came.append(1))
    first.over(started=True)
    second.come(10, lambda: came.append(2))
    assert came == [1, 2]


@pytest.mark.parametrize("started", [True, False])
async def test_a_turn_comes_when_all_before_it_have_started_or_are_out(*, started: bool) -> None:
    first, second, third = row(3)
    came: list[int] = []
    third.come(10, lambda: came.append(3))
    # Who has started had its own turn before; who is out may be so at once.
    for turn in (first, second) if started else (second, first):
        await asyncio.sleep(0)
        assert not came
        turn.over(started=started)
    await wait_until(lambda: came == [3])


async def test_a_message_that_nobody_decides_holds_up_those_behind_it_for_the_limit_only() -> None:
    came: list[int] = []
    _, _, third, fourth, fifth = row(5)

    def start(number: int, turn: Turn) -> None:
        came.append(number)
        turn.over(started=True)

    fourth.come(0.01, lambda: start(4, fourth))
    third.come(0.01, lambda: start(3, third))
    fifth.come(0.01, lambda: start(5, fifth))
    await wait_until(lambda: len(came) == 3)
    assert came.index(5) > came.index(4), "it waited for the one before it, which came first"


async def test_a_long_row_that_waits_for_one_starts_in_its_order() -> None:
    turns = row(5000)
    came: list[int] = []

    def start(number: int) -> None:
        came.append(number)
        turns[number].over(started=True)

    for number in range(4999, 0, -1):
        turns[number].come(10, partial(start, number))
    turns[0].come(10, lambda: start(0))
    await wait_until(lambda: len(came) == 5000)
    assert came == list(range(5000))

"""The checker of claim histories: what can be passes, and each thing that cannot be is told."""

from __future__ import annotations

import pytest

from tests.support.history import Kind, Op, Said, Token, violations

A: Token = (0, 100, 1)
B: Token = (1, 101, 1)
A_LATER: Token = (0, 102, 2)


def op(kind: Kind, token: Token, invoked: float, returned: float, said: Said = Said.OK) -> Op:
    return Op(kind, "m", token, invoked, returned, said)


def take(token: Token, invoked: float, returned: float, said: Said = Said.OK) -> Op:
    return op(Kind.TAKE, token, invoked, returned, said)


History = tuple[list[Op], dict[int, float]]

POSSIBLE: dict[str, History] = {
    "one holder from take to end": (
        [take(A, 0, 1), take(B, 0, 1, Said.NO), op(Kind.EFFECT, A, 1, 2), op(Kind.END, A, 2, 3)],
        {},
    ),
    "taken over after the lapse": ([take(A, 0, 1), take(B, 5, 6), op(Kind.EFFECT, B, 6, 7)], {100: 5.5}),
    "given back and taken again": ([take(A, 0, 1), op(Kind.RELEASE, A, 2, 3), take(B, 2, 4)], {}),
    "perhaps given back": ([take(A, 0, 1), op(Kind.RELEASE, A, 2, 3, Said.UNKNOWN), take(B, 4, 5)], {}),
    "the zombie's effect was refused": (
        [take(A, 0, 1), take(B, 5, 6), op(Kind.EFFECT, A, 7, 8, Said.NO), op(Kind.EFFECT, B, 7, 8)],
        {100: 4},
    ),
    "the zombie's effect may have been before the other's take": (
        [take(A, 0, 1), op(Kind.EFFECT, A, 4, 6), take(B, 5, 7, Said.UNKNOWN)],
        {100: 4},
    ),
    "an effect after a take whose answer was lost": ([take(A, 0, 1, Said.UNKNOWN), op(Kind.EFFECT, A, 2, 3)], {}),
    "both at once, the one of them lapsed": ([take(A, 0, 9), take(B, 1, 8)], {100: 3}),
    "both at once, and only the later-asked one lapsed": ([take(A, 0, 9), take(B, 1, 8)], {101: 3}),
    "asked again with the same token": ([take(A, 0, 1), take(A, 2, 3)], {}),
    "a new epoch": ([take(A, 0, 1), Op(Kind.TAKE, "other", A_LATER, 5, 6)], {100: 4}),
}
IMPOSSIBLE: dict[str, History] = {
    "became the holder while": ([take(A, 0, 1), take(B, 2, 3)], {}),
    "became the holder while (too early)": ([take(A, 0, 1), take(B, 2, 3)], {100: 3.5}),
    "became the holder while (at once)": ([take(A, 0, 3), take(B, 1, 2)], {}),
    "after (1, 101, 1) had replaced it": ([take(A, 0, 1), take(B, 5, 6), op(Kind.EFFECT, A, 7, 8)], {100: 4}),
    "became the holder after effect": ([take(A, 0, 1), op(Kind.EFFECT, A, 2, 3), take(B, 5, 6)], {100: 4}),
    "became the holder after end": ([take(A, 0, 1), op(Kind.END, A, 2, 3), take(B, 5, 6)], {100: 4}),
    "never held it": ([take(A, 0, 1), op(Kind.EFFECT, B, 2, 3)], {}),
    "ended by 2 holders": (
        [take(A, 0, 1), take(B, 5, 6), op(Kind.END, B, 6, 7), op(Kind.END, A, 6, 8)],
        {100: 4},
    ),
    "under epoch 100 after 102": (
        [take(A, 0, 1), Op(Kind.TAKE, "other", A_LATER, 5, 6), op(Kind.EFFECT, A, 7, 8)],
        {100: 4},
    ),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_history_that_can_be_passes(name: str) -> None:
    ops, lapses = POSSIBLE[name]
    assert violations(ops, lapses) == []


@pytest.mark.parametrize("told", IMPOSSIBLE)
def test_a_history_that_cannot_be_is_told(told: str) -> None:
    ops, lapses = IMPOSSIBLE[told]
    found = violations(ops, lapses)
    assert any(told.removesuffix(" (too early)").removesuffix(" (at once)") in one for one in found), found

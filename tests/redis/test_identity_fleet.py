"""A fleet's traffic through the real matching and claims, beside other keys (`python -m tests.identity`)."""

from __future__ import annotations

import pytest

from pallas.simulate.world import Impl
from tests.identity import KEYS, OURS, SCENES, Scene, measured, seats, table
from tests.support.claimants import claimants
from tests.support.identity_fleet import Traffic, arrivals, said_in, score
from tests.support.matchers import Matcher, run

MESSAGES = 1200
EXACT = [name for name, scene in SCENES.items() if not scene.off_clocks]


@pytest.mark.parametrize("name", EXACT)
async def test_every_message_is_handled_once_whatever_ends_report_it(redis_url: str, name: str) -> None:
    scores = await measured(redis_url, SCENES[name], MESSAGES, seed=7)
    ours = scores[OURS]
    assert (ours.swallowed, ours.doubled, ours.below) == (0, 0, 0), ours
    assert ours.handled == ours.seen == MESSAGES
    if all(seat.sequenced for seat in SCENES[name].fleet):
        assert ours.swaps == 0
    # The measure can fail: each key that is or was in use swallows or doubles, here or in a mixed fleet.
    assert scores["(group, user, text)"].swallowed > MESSAGES / 10
    assert scores["(group, user, text, time)"].swallowed > MESSAGES / 100
    assert scores["message_id"].doubled > MESSAGES
    for key in KEYS:
        if key in table({name: scores}, MESSAGES) and key != "sequence, else content":
            assert scores[key].swallowed + scores[key].doubled > 0


async def test_clocks_that_are_a_second_off_double_few_messages_once_they_are_found_out(redis_url: str) -> None:
    name = "3 plain, 5 % a second off"
    scores = await measured(redis_url, SCENES[name], MESSAGES * 2, seed=7)
    naive, ours = scores["(group, user, text, time)"], scores[OURS]
    assert naive.doubled > MESSAGES * 2 * 0.1
    assert ours.doubled < naive.doubled / 5, (ours, naive)
    assert ours.swallowed < naive.swallowed / 10, (ours, naive)


async def test_one_account_whose_clock_is_always_a_second_off_is_joined_with_the_others(redis_url: str) -> None:
    fleet = seats((Impl.NAPCAT, False, 0), (Impl.LLONEBOT, False, 1), (Impl.NAPCAT, False, 0))
    traffic = Traffic(MESSAGES, repeats=0.0, losses=0.0, replays=0.0)
    said = said_in(traffic)
    reports = arrivals(fleet, said, traffic)
    for one in reports:
        one.message.time_s += one.account == 2
    async with claimants(redis_url, 2) as found:
        found_out = await run([Matcher(one) for one in found], fleet, reports)
    ours = score(said, reports, found_out)
    assert ours.doubled < MESSAGES * 0.05, ours


@pytest.mark.parametrize("seed", [1, 2])
async def test_workers_that_are_started_anew_double_nothing(redis_url: str, seed: int) -> None:
    scene: Scene = SCENES["2 NapCat + 2 plain"]
    traffic = Traffic(MESSAGES, seed=seed)
    said = said_in(traffic)
    reports = arrivals(scene.fleet, said, traffic)
    restarts = [said[-1].at_s * share for share in (0.2, 0.4, 0.6, 0.8)]
    async with claimants(redis_url, scene.workers) as found:
        wins = await run([Matcher(one) for one in found], scene.fleet, reports, seed=seed, restarts=restarts)
    ours = score(said, reports, wins)
    assert (ours.swallowed, ours.doubled) == (0, 0), ours

"""Histories of claims against a real server: what the product does passes the checker, broken builds of it do not.

In each life of a message somebody wins it; then the winner does well, gives it back, or is taken for dead while it goes
on without knowing. The broken builds lack one check of a script; the checker must find what that costs.
"""

from __future__ import annotations

import asyncio
import random
from importlib.resources import files

import pytest

from pallas.claim import Claim
from pallas.redis.scripts import Script
from tests.support.claimants import Claimant, claimants
from tests.support.history import violations
from tests.support.recorder import BlindEpoch, Recorder

LIVES = 40
BROKEN = {
    "an effect needs no token": (
        "entry_mark",
        "elseif redis.call('HEXISTS', open, token) == 0 then\n        return list and 0 or -1\n",
        "",
        "had replaced it",
    ),
    "what has begun may be taken over": (
        "entry_take",
        "    if list:sub(at - 1, at - 1) ~= 'c' then return 0 end\n",
        "",
        "became the holder after effect",
    ),
    "whoever asks has won": (
        "entry_claim",
        "if records:sub(at + 1, at + 10) == token then return 1 end",
        "do return 1 end",
        "became the holder while",
    ),
}


def broken(name: str, check: str, instead: str) -> Script:
    """A script without one of its checks."""
    text = (files("pallas.redis") / "lua" / f"{name}.lua").read_text("utf-8")
    assert text.count(check) == 1, f"{name}.lua has no such check any more"
    return Script(name, text.replace(check, instead))


async def finish(history: Recorder, who: Claimant, key: str, claim: Claim) -> None:
    """The handler sends, where it may, and the message ends."""
    if await history.effect(who, key, claim):
        history.end(who, key, claim)
        await who.settled()


async def replace(history: Recorder, key: str, rest: list[tuple[Claimant, Claim]]) -> None:
    """Those who lost try to take it over from whoever holds it, however it stands; who can goes on."""
    for who, claim in rest:
        await who.claims.look([claim])
    took = await asyncio.gather(*(history.take_over(who, key, claim) for who, claim in rest))
    for (who, claim), won in zip(rest, took, strict=True):
        if won:
            await finish(history, who, key, claim)


async def live(history: Recorder, seq: int, workers: list[Claimant], rng: random.Random) -> None:
    """One message's life."""
    key = f"message {seq}"
    claims = {worker.number: worker.claim(seq) for worker in workers}
    order = rng.sample(workers, len(workers))
    won = await asyncio.gather(*(history.take(who, key, claims[who.number]) for who in order))
    first = order[won.index(True)]
    mine = claims[first.number]
    rest = [(who, claims[who.number]) for who in order if who is not first]
    fate = rng.choice(("well", "given back", "slow", "slow and begun", "slow at the same time"))
    if fate == "well":
        await finish(history, first, key, mine)
        return
    if fate == "given back":
        history.release(first, key, mine)
        await first.settled()
        await replace(history, key, rest)
        return
    if fate == "slow and begun":
        await history.effect(first, key, mine)
    history.lapse(first.epoch.epoch)
    steps = [replace(history, key, rest), finish(history, first, key, mine)]
    if fate == "slow at the same time":
        await asyncio.gather(*rng.sample(steps, 2))
    else:
        for step in steps:
            await step
    first.epoch.renew()


async def test_what_three_workers_do_to_eighty_messages_is_a_possible_history(redis_url: str) -> None:
    for seed in range(2):
        async with claimants(redis_url, 3, epochs=BlindEpoch) as workers:
            history, rng = Recorder(), random.Random(seed)
            for seq in range(LIVES):
                await live(history, seed * LIVES + seq, workers, rng)
            assert violations(history.ops, history.lapses) == []
            books = await workers[0].books()
            assert (books.distinct, books.ended, books.open) == ((seed + 1) * LIVES, (seed + 1) * LIVES, 0)
            assert sum(worker.meters.fences for worker in workers) > 3


@pytest.mark.parametrize("name", BROKEN)
async def test_a_build_without_one_of_its_checks_is_found_out(redis_url: str, name: str) -> None:
    script, check, instead, told = BROKEN[name]
    mutant = broken(script, check, instead)
    place = {"entry_mark": "_mark", "entry_take": "_take_over", "entry_claim": "_claim"}[script]
    async with claimants(redis_url, 3, epochs=BlindEpoch) as workers:
        for worker in workers:
            setattr(worker.claims, place, mutant)
        history, rng = Recorder(), random.Random(1)
        for seq in range(LIVES):
            await live(history, seq, workers, rng)
        found = violations(history.ops, history.lapses)
    assert any(told in one for one in found), found

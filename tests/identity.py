"""`python -m tests.identity`: what other ways to tell a message from its copies swallow and double, beside ours.

Ours is the product's matching, with real claims on a real server; the others are keys that were or are in use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pallas.model import Message
from pallas.simulate.world import Impl
from tests.support.claimants import claimants
from tests.support.identity_fleet import Arrival, Score, Seat, Traffic, arrivals, said_in, score
from tests.support.matchers import Matcher, run
from tests.support.valkey import ValkeyProcess

Key = Callable[[Message], Hashable]
KEYS: dict[str, Key] = {
    "(group, user, text)": lambda one: (one.group_id, one.user_id, one.text),
    "(group, user, text, time)": lambda one: (one.group_id, one.user_id, one.text, one.time_s),
    "(group, user, time)": lambda one: (one.group_id, one.user_id, one.time_s),
    "message_id": lambda one: one.message_id,
    "sequence, else content": lambda one: (
        (one.group_id, one.seq) if one.seq is not None else (one.group_id, one.user_id, one.text, one.time_s)
    ),
}
OURS = "Pallas Cluster"
COLUMNS = ("swallowed", "doubled", "swaps")
ABOUT = """\
{messages} messages for each fleet; 15 % are honest repeats, 1 % of the reports are lost, 1 % are told again.
In per cent of the messages:

  swallowed  nobody handled it
  doubled    it was handled again, as though somebody had said it again
  swaps      of two equal messages of one person and second one was handled twice and the other not at all:
             the group sees two answers, as it should; only the quoted message may be the wrong one

A row is a way to tell a message from its copies: the first report of a key is handled. The last row is the product."""


def seats(*ends: tuple[Impl, bool, int]) -> tuple[Seat, ...]:
    """Accounts, each as end, whether it reports sequences, and worker."""
    return tuple(Seat(*one) for one in ends)


@dataclass(slots=True, frozen=True)
class Scene:
    """A fleet and how its clocks go."""

    fleet: tuple[Seat, ...]
    off_clocks: float = 0.0

    @property
    def workers(self) -> int:
        return 1 + max(seat.worker for seat in self.fleet)


_NAPCAT, _LLBOT = Impl.NAPCAT, Impl.LLONEBOT
SCENES: dict[str, Scene] = {
    "4 NapCat": Scene(seats((_NAPCAT, True, 0), (_NAPCAT, True, 0), (_NAPCAT, True, 1), (_NAPCAT, True, 2))),
    "4 ends": Scene(seats((_NAPCAT, True, 0), (_LLBOT, True, 1), (Impl.LAGRANGE, True, 0), (Impl.GOCQ, True, 1))),
    "2 NapCat + 2 plain": Scene(seats((_NAPCAT, True, 0), (_NAPCAT, True, 1), (_NAPCAT, False, 0), (_LLBOT, False, 1))),
    "2 + 2, apart": Scene(seats((_NAPCAT, True, 0), (_NAPCAT, True, 0), (_NAPCAT, False, 1), (_LLBOT, False, 2))),
    "3 plain": Scene(seats((_NAPCAT, False, 0), (_LLBOT, False, 1), (_NAPCAT, False, 0))),
    "3 plain, 5 % a second off": Scene(seats((_NAPCAT, False, 0), (_LLBOT, False, 1), (_NAPCAT, False, 0)), 0.05),
}


def by_key(key: Key, reports: list[Arrival]) -> Counter[int]:
    """How often each message is handled where the first to set a key handles it."""
    known: set[Hashable] = set()
    wins: Counter[int] = Counter()
    for one in reports:
        found = key(one.message)
        if found not in known:
            known.add(found)
            wins[one.physical] += 1
    return wins


async def ours(url: str, scene: Scene, reports: list[Arrival], seed: int) -> Counter[int]:
    """How often the product handles each message."""
    async with claimants(url, scene.workers) as found:
        return await run([Matcher(one) for one in found], scene.fleet, reports, seed=seed)


async def measured(url: str, scene: Scene, messages: int, seed: int) -> dict[str, Score]:
    """The scores of all keys and of the product for one scene."""
    traffic = Traffic(messages, off_clocks=scene.off_clocks, seed=seed)
    said = said_in(traffic)
    reports = arrivals(scene.fleet, said, traffic)
    scores = {name: score(said, reports, by_key(key, reports)) for name, key in KEYS.items()}
    scores[OURS] = score(said, reports, await ours(url, scene, reports, seed))
    return scores


def table(results: dict[str, dict[str, Score]], messages: int) -> str:
    """A block for each fleet, a row for each key, in per cent of what was said."""
    lines = [ABOUT.format(messages=messages)]
    for name, scores in results.items():
        lines += ["", f"{name:28}" + "".join(f"{column:>11}" for column in COLUMNS)]
        for key in (*KEYS, OURS):
            found = scores[key].as_dict()
            lines.append(f"  {key:26}" + "".join(f"{found[f'{column}_percent']:>11.2f}" for column in COLUMNS))
    return "\n".join(lines)


async def main() -> None:
    """Measure every scene and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.identity", description=__doc__)
    parser.add_argument("--messages", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, dict[str, Score]] = {}
    with ValkeyProcess() as server:
        for name, scene in SCENES.items():
            server.flush()
            results[name] = await measured(server.url, scene, options.messages, options.seed)
    if options.json:
        rows = {name: {key: one.as_dict() for key, one in scores.items()} for name, scores in results.items()}
        sys.stdout.write(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    else:
        sys.stdout.write(table(results, options.messages) + "\n")


if __name__ == "__main__":
    asyncio.run(main())

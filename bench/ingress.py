"""A worker's whole path under flood, from frames on real sockets to `done` in Redis, against NoneBot2 on the same ones.

Rates are *reports* per second: frames written by all accounts, divided by the time from the first frame sent to the
last message handled. The last message of each account is its own, so that a run ends only when every account's frames
were read. A message that is lost or handled twice makes the bench fail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import orjson

from bench.ends import End, ceiling, is_answer, pieces
from bench.frames import Said, Traffic, masked, report, stamped
from bench.measure import Bar, Line, Result, keep, median, ratio, rounded
from bench.systems import books, nonebot, valkey, worker
from pallas.errors import PallasError
from pallas.redis import Redis

ACCOUNTS = 4
_OURS_ALONE, _OURS_SHARED = 20_000, 12_000
_BASELINE_ALONE, _BASELINE_SHARED = 2_000, 600
_PACE_PER_S = 500
_PACED_S, _BASELINE_PACED_S = 20, 10
_PATIENCE_S = 120.0
_BARS = {
    "nonebot_ratio": Bar(15),
    "nonebot_ratio_4": Bar(20),
    "p99_ms": Bar(2, less_is_better=True),
}


@dataclass(slots=True, frozen=True)
class Flood:
    """One flooded run: `done_ms` is how long after the last handler Redis knew every message as done."""

    per_s: float
    done_ms: float = 0.0


class System:
    """One benched application with the ends that are connected to it; `copies` is whether it handles every report."""

    def __init__(self, name: str, url: str, first_account: int, traffic: Traffic, *, copies: bool) -> None:
        # Whichever account reported the last message is the one that answers it.
        self._said: asyncio.Queue[str] = asyncio.Queue()
        self.name = name
        self.ends = [End(url, first_account + number, self._said) for number in range(ACCOUNTS)]
        self.traffic = traffic
        self.copies = copies
        self.sent = 0
        """Distinct messages sent so far, control included."""

    async def ask(self, text: str, word: str) -> str:
        """Have the application do `text` and return what it says, which begins with `word`."""
        said, end = self.traffic.control(text), self.ends[0]
        self.sent += 1
        end.write(masked(report(said, end.account, int(time.time()))))
        return await self.hear(word)

    async def hear(self, word: str) -> str:
        """The next answer, which must begin with `word`."""
        try:
            answer = await asyncio.wait_for(self._said.get(), _PATIENCE_S)
        except TimeoutError:
            closed = [end.account for end in self.ends if not end.is_open]
            raise PallasError(
                f"{self.name} did not say {word!r} within {_PATIENCE_S:g} s; connections closed: {closed or 'none'}"
            ) from None
        assert is_answer(answer, word), f"{self.name} said {answer!r}, not {word!r}"
        return answer

    async def check(self, distinct: int, accounts: int) -> dict[str, Any]:
        """What the application saw. Raises PallasError where a message was lost or handled too often."""
        found: dict[str, Any] = orjson.loads((await self.ask("report", "report")).partition(" ")[2])
        wanted = distinct * accounts + accounts if self.copies else distinct + accounts
        if found["handled"] != wanted or found["distinct"] != distinct + accounts:
            raise PallasError(
                f"{self.name}: {distinct + accounts} distinct messages were sent, {found['distinct']} of them handled, "
                f"in {found['handled']} runs of the handler instead of {wanted}"
            )
        return found

    async def flood(self, messages: Sequence[Said], accounts: int) -> tuple[float, dict[str, Any]]:
        """Have `accounts` ends report every message; reports per second, and what the application saw."""
        ends, now = self.ends[:accounts], int(time.time())
        last = self.traffic.messages(accounts)
        written = [
            pieces([masked(report(said, end.account, now)) for said in [*messages, own]])
            for end, own in zip(ends, last, strict=True)
        ]
        runs = len(messages) * (accounts if self.copies else 1) + accounts
        await self.ask(f"begin flood {runs}", "ready")
        self.sent += len(messages) + accounts
        began = time.monotonic_ns()
        await asyncio.gather(*(end.flood(each) for end, each in zip(ends, written, strict=True)))
        await self.hear("done")
        found = await self.check(len(messages), accounts)
        return (len(messages) + 1) * accounts * 1e9 / (found["ended_ns"] - began), found

    async def pace(self, messages: Sequence[Said], per_s: float) -> dict[str, Any]:
        """One account sends the messages evenly; what the application measured from frame to handler."""
        end, began = self.ends[0], time.monotonic()
        await self.ask(f"begin paced {len(messages) + 1}", "ready")
        self.sent += len(messages) + 1
        for number, said in enumerate([*messages, *self.traffic.messages(1)]):
            await asyncio.sleep(began + number / per_s - time.monotonic())
            now_ns = time.monotonic_ns()
            text = stamped(said.text, now_ns)
            paced = Said(said.group_id, said.user_id, said.seq, text)
            end.write(masked(report(paced, end.account, int(time.time()))))
        await self.hear("done")
        return await self.check(len(messages), 1)


async def run(rounds: int) -> Result:
    """Flood both systems in turn `rounds` times, then pace them."""
    traffic = Traffic(1)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        _, redis, folder = await enter(valkey())
        url, _ = await enter(worker(folder, "bench.apps:tally"))
        other = await enter(nonebot(folder))
        ours = System("the worker", url, 9001, traffic, copies=False)
        baseline = None
        if other is not None:
            baseline = System("NoneBot", other, 9101, traffic, copies=True)
        for end in [*ours.ends, *(baseline.ends if baseline is not None else ())]:
            await enter(end)
        return await _compare(ours, baseline, redis, traffic, rounds)


async def _compare(ours: System, baseline: System | None, redis: Redis, traffic: Traffic, rounds: int) -> Result:
    alone: list[Flood] = []
    shared: list[Flood] = []
    baseline_alone: list[float] = []
    baseline_shared: list[float] = []
    # What is only paid once (first use of a script, of a group, of a code path) is paid before the rounds.
    for system in (ours, baseline):
        if system is not None:
            await system.flood(traffic.messages(500), 1)
            await system.flood(traffic.messages(100), ACCOUNTS)
    for _ in range(rounds):
        messages = traffic.messages(_OURS_ALONE)
        alone.append(await _flood_ours(ours, redis, messages, 1))
        if baseline is not None:
            baseline_alone.append((await baseline.flood(messages[:_BASELINE_ALONE], 1))[0])
        messages = traffic.messages(_OURS_SHARED)
        shared.append(await _flood_ours(ours, redis, messages, ACCOUNTS))
        if baseline is not None:
            baseline_shared.append((await baseline.flood(messages[:_BASELINE_SHARED], ACCOUNTS))[0])
    paced = await ours.pace(traffic.messages(_PACE_PER_S * _PACED_S), _PACE_PER_S)
    baseline_paced = None
    if baseline is not None:
        baseline_paced = await baseline.pace(traffic.messages(_PACE_PER_S * _BASELINE_PACED_S), _PACE_PER_S)
    now = int(time.time())
    sender = await ceiling([masked(report(said, 9000, now)) for said in traffic.messages(60_000)])

    figures = {
        "events_per_s": median([flood.per_s for flood in alone]),
        "reports_per_s_4": median([flood.per_s for flood in shared]),
        "p50_ms": paced["p50_ms"],
        "p99_ms": paced["p99_ms"],
        "max_ms": paced["max_ms"],
        "done_ms": max(flood.done_ms for flood in [*alone, *shared]),
        "sender_per_s": sender,
    }
    if baseline_paced is not None:
        figures |= {
            "nonebot_per_s": median(baseline_alone),
            "nonebot_ratio": ratio([flood.per_s for flood in alone], baseline_alone),
            "nonebot_per_s_4": median(baseline_shared),
            "nonebot_ratio_4": ratio([flood.per_s for flood in shared], baseline_shared),
            "nonebot_p50_ms": baseline_paced["p50_ms"],
            "nonebot_p99_ms": baseline_paced["p99_ms"],
        }
    return _result(figures, rounds, compared=baseline is not None)


async def _flood_ours(ours: System, redis: Redis, messages: Sequence[Said], accounts: int) -> Flood:
    per_s, found = await ours.flood(messages, accounts)
    limit = time.monotonic() + 10
    while True:
        opened, counts = await books(redis)
        done_ns = time.monotonic_ns()
        if opened == 0 and counts.get("handled", 0) == ours.sent:
            return Flood(per_s, (done_ns - found["ended_ns"]) / 1e6)
        if time.monotonic() > limit:
            raise PallasError(f"Redis' books do not show {ours.sent} handled messages: {counts}, {opened} open")
        await asyncio.sleep(0.005)


def _result(figures: dict[str, float], rounds: int, *, compared: bool) -> Result:
    def line(key: str, ours: str, baseline: str, what: str) -> Line:
        other = f"{rounded(figures[baseline])} {what}" if baseline in figures else "not installed"
        return Line(key, f"{rounded(figures[ours])} {what}", other, figures.get(key), _BARS[key])

    result = Result("ingress", keep(figures))
    result.lines += [
        line("nonebot_ratio", "events_per_s", "nonebot_per_s", "reports/s"),
        line("nonebot_ratio_4", "reports_per_s_4", "nonebot_per_s_4", "reports/s"),
        line("p99_ms", "p99_ms", "nonebot_p99_ms", "ms"),
    ]
    result.notes += [
        "lost 0, doubled 0 in every run (otherwise this bench fails)",
        "reports/s: frames of all accounts, from the first sent to the last handled",
        f"at {_PACE_PER_S}/s from frame to handler: p50 {figures['p50_ms']:.2f} ms, max {figures['max_ms']:.1f} ms",
        f"every message was `done` in Redis within {figures['done_ms']:.0f} ms after the last handler started",
        f"the load generator alone can send {rounded(figures['sender_per_s'])} frames/s",
        f"medians of {rounds} rounds in turn; ratios are medians of the rounds' own ratios",
    ]
    if not compared:
        result.notes.append("no baseline: it needs pip install 'pallas-cluster[bench]'")
    result.figures["rounds"] = rounds
    return result

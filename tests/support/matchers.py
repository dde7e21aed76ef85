"""Workers reduced to their matching: the real table, the real claims on a real server, and nothing of a handler."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

from pallas.claim import Verdict
from pallas.claims import Claims
from pallas.model import Message
from shard.conduct import Conducts
from shard.matching import Standing, Table
from shard.report import MessageReport
from shard.terms import Terms
from tests.support.claimants import KEYS, Claimant
from tests.support.identity_fleet import Arrival, Seat
from tests.support.opened import FakeEpoch

_JUDGE_S = 10.0
_IN_FLIGHT = 300


class Matcher:
    """One worker's matching; started anew it has another epoch and remembers nothing."""

    def __init__(self, claimant: Claimant, *, keep_s: float = 120.0, keep_plain_s: float = 660.0) -> None:
        self._claimant = claimant
        self._keep = {"keep_s": keep_s, "keep_plain_s": keep_plain_s}
        self.terms = Terms()
        self.conducts = Conducts()
        self.table = self._table()

    def _table(self) -> Table:
        return Table(KEYS, max_entries=100_000, terms=self.terms, conducts=self.conducts, **self._keep)

    def restart(self) -> None:
        """What a killed worker's successor is."""
        epoch = self._claimant.epoch
        self._claimant.epoch = fresh = FakeEpoch(epoch.shard_id, epoch.epoch + 1000)
        self._claimant.claims._epoch = fresh
        self._claimant.claims._endings._epoch = fresh
        self.table = self._table()

    @property
    def claims(self) -> Claims:
        return self._claimant.claims

    def match(self, message: Message, now: float) -> MessageReport | None:
        """The report, if it leaves the table; decided in the turn in which it came."""
        report = MessageReport(SimpleNamespace(bot_id=message.bot_id), message, now)  # type: ignore[arg-type]
        report.standing, report.entry = self.table.observe(message, report.space(), now)
        return report if report.standing in {Standing.NEW, Standing.LEARNED} else None

    async def wins(self, report: MessageReport) -> bool:
        """Whether Redis gives the message to this report."""
        claim = report.attempt()
        verdict = await self.claims.take(claim, report.body, 30.0)
        if verdict is Verdict.WON:
            self._claimant.handled(claim)
        return verdict is Verdict.WON

    async def report(self, message: Message, now: float = 0.0) -> bool:
        """Take one report in; True where its message is handled by it."""
        report = self.match(message, now)
        return report is not None and await self.wins(report)


async def run(
    workers: list[Matcher],
    fleet: tuple[Seat, ...],
    reports: Iterable[Arrival],
    *,
    seed: int = 1,
    restarts: Iterable[float] = (),
) -> Counter[int]:
    """Let the reports arrive; how often each message was handled. Claims are under way while others arrive."""
    rng = Random(f"turns:{seed}")
    wins: Counter[int] = Counter()
    under_way: set[asyncio.Task[Any]] = set()
    left_restarts = sorted(restarts)
    judge_at = 0.0
    for worker in workers:
        # What an account's worker announces when it connects.
        worker.terms.contents = not all(seat.sequenced for seat in fleet)

    async def decide(worker: Matcher, report: MessageReport, physical: int) -> None:
        if await worker.wins(report):
            wins[physical] += 1

    for one in reports:
        if one.at_s >= judge_at:
            judge_at = one.at_s + _JUDGE_S
            _judge(workers)
        if left_restarts and one.at_s >= left_restarts[0]:
            left_restarts.pop(0)
            if under_way:
                await asyncio.wait(under_way)
            rng.choice(workers).restart()
        worker = workers[fleet[one.account].worker]
        report = worker.match(one.message, one.at_s)
        if report is not None:
            task = asyncio.create_task(decide(worker, report, one.physical))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        if rng.random() < 0.3:
            await asyncio.sleep(0)
        if len(under_way) > _IN_FLIGHT:
            await asyncio.wait(under_way)
    await asyncio.gather(*under_way)
    return wins


def _judge(workers: list[Matcher]) -> None:
    """What each worker does on a timer: all learn where some clock is off."""
    for worker in workers:
        for conduct in worker.conducts.values():
            conduct.judge()
    is_off = any(conduct.is_off for worker in workers for conduct in worker.conducts.values())
    for worker in workers:
        worker.terms.tolerance_s = int(is_off)

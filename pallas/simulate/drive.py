"""Runs a simulation: connects the accounts, lets the world happen, waits for silence and closes the books.

One loop and one heap hold every report that is still to come; an account adds a writer, not a task per report.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from pallas.clock import Clock, SystemClock
from pallas.errors import SimulationFailed
from pallas.simulate.ledger import Ledger, LedgerReport
from pallas.simulate.link import Due, End
from pallas.simulate.options import Options, address_of
from pallas.simulate.world import Physical, World
from pallas.tasks import Tasks

_TICK_S = 0.005
_POLL_S = 0.05
_PROGRESS_S = 1.0
_REMEDIES = {
    "HTTP 401": "set PALLAS_ONEBOT_TOKEN to the workers' value",
    "HTTP 403": "set PALLAS_ONEBOT_TOKEN to the workers' value",
    "HTTP 404": "the path is not the workers' PALLAS_ONEBOT_PATH",
}
_START_WORKERS = "start the workers first: pallas up --workers 2 --app pallas.demo:app"


class Stage(StrEnum):
    """Where a run is."""

    CONNECTED = "connected"
    FIRST_ANSWER = "first_answer"
    SENDING = "sending"
    SENT = "sent"
    SETTLING = "settling"
    SETTLED = "settled"


@dataclass(slots=True, frozen=True)
class Progress:
    """A sign of life of a run, for people."""

    stage: Stage
    elapsed_s: float
    """Since the accounts began to connect; for the first answer, when it came."""
    accounts: int
    connected: int
    messages: int
    sent: int
    """Numbered messages said so far."""
    reports: int
    answered: int
    outstanding: int
    """Answers owed now."""

    def __str__(self) -> str:
        match self.stage:
            case Stage.CONNECTED:
                return f"{self.connected} simulated accounts connected after {self.elapsed_s:.1f} s"
            case Stage.FIRST_ANSWER:
                return f"first answer after {self.elapsed_s:.1f} s"
            case Stage.SETTLING:
                open_ = f"{self.outstanding} answers" if self.outstanding != 1 else "1 answer"
                what = f"waiting for {open_}" if self.outstanding else "waiting whether a double comes"
                return f"{self._counts()}; {what}"
            case Stage.SETTLED:
                return f"{self._counts()}; the books are closed"
            case _:
                return self._counts()

    def _counts(self) -> str:
        return (
            f"{self.elapsed_s:5.1f} s  {self.sent}/{self.messages} messages, {self.reports} reports,"
            f" {self.answered} answered, {self.outstanding} open"
        )


OnProgress = Callable[[Progress], None]


class Simulation:
    """Connected accounts and their ledger; made by `simulated`."""

    def __init__(self, options: Options, on_progress: OnProgress, clock: Clock, tasks: Tasks) -> None:
        self._options = options
        self._on_progress = on_progress
        self._clock = clock
        self._began = clock.mono()
        self.world = World(options, int(clock.wall_s()))
        self.ledger = Ledger(self.world.accounts)
        self.ends = tuple(
            End(account, self.world, options, ledger=self.ledger, clock=clock, tasks=tasks)
            for account in self.world.accounts
        )
        self._failure: BaseException | None = None
        for end in self.ends:
            tasks.start(end.run(), f"account {end.account.self_id}").add_done_callback(self._ended)
        self._coming: list[tuple[float, int, End, Due | None]] = []
        self._order = 0
        self._told_first = False
        self._said_at = self._began
        self._stopped = False

    def stop(self) -> None:
        """Send nothing more; `play` then closes the books on what was sent."""
        self._stopped = True

    async def connect(self) -> None:
        """Wait until every account is connected. Raises SimulationFailed when `connect_timeout_s` is over."""
        deadline = self._clock.mono() + self._options.connect_timeout_s
        while not all(end.connected for end in self.ends):
            self._watch()
            if self._clock.mono() > deadline:
                raise SimulationFailed(self._unconnected())
            await asyncio.sleep(_TICK_S)
        self._tell(Stage.CONNECTED)

    async def play(self) -> LedgerReport:
        """Let every message of the world happen, wait for silence, and report. Once per simulation."""
        began = self._clock.mono()
        await self._happen(began)
        self._tell(Stage.SENT)
        await self._settle()
        self._tell(Stage.SETTLED)
        first_at = self.ledger.first_answer_at
        return self.ledger.report(
            accounts=len(self.ends),
            groups=len(self.world.groups),
            seed=self._options.seed,
            seconds=round(self._clock.mono() - began, 3),
            rate=round(self.ledger.sent / max(_TICK_S, self._said_at - began), 1),
            first_answer_s=None if first_at is None else round(first_at - self._began, 3),
            interrupted=self._stopped,
        )

    async def _happen(self, began: float) -> None:
        messages = self.world.messages()
        message = next(messages, None)
        for end in self.ends:
            if end.account.renew_at_s is not None:
                self._later(end.account.renew_at_s, end, None)
        told = began
        while (message is not None or self._coming) and not (self._stopped or self._is_ignored()):
            now = self._clock.mono()
            while message is not None and message.at_s <= now - began:
                self._said(message)
                message = next(messages, None)
            while self._coming and self._coming[0][0] <= now - began:
                _, _, end, due = heapq.heappop(self._coming)
                if due is None:
                    end.renew()
                else:
                    end.push(due)
            if now - told >= _PROGRESS_S:
                told = now
                self._tell(Stage.SENDING)
            self._watch()
            await asyncio.sleep(_TICK_S)

    def _said(self, message: Physical) -> None:
        """A message is said now: its reports are made, to be written when they are due."""
        time_s = int(self._clock.wall_s())
        now = self._said_at = self._clock.mono()
        record = self.ledger.physical(message)
        for report in message.reports:
            end = self.ends[report.account]
            frame = end.frame(message, time_s)
            self._later(message.at_s + report.delay_s, end, Due(record, frame, now + report.delay_s))
            for copy_s in report.copies_s:
                self._later(message.at_s + copy_s, end, Due(record, frame, now + copy_s, copy=True))

    def _later(self, at_s: float, end: End, due: Due | None) -> None:
        self._order += 1
        heapq.heappush(self._coming, (at_s, self._order, end, due))

    async def _settle(self) -> None:
        """Until nothing has changed for a while: a short one when all is answered, else a patient one."""
        ledger = self.ledger
        seen, since = ledger.changes, self._clock.mono()
        told = since
        while True:
            await asyncio.sleep(_POLL_S)
            self._watch()
            now = self._clock.mono()
            if ledger.changes != seen:
                seen, since = ledger.changes, now
            owed = ledger.outstanding or any(end.pending for end in self.ends)
            if now - since >= (self._options.patience_s if owed else self._options.settle_s) or self._is_ignored():
                return
            if now - told >= _PROGRESS_S:
                told = now
                self._tell(Stage.SETTLING)

    def _is_ignored(self) -> bool:
        """Whether nothing at all was answered for so long that nothing will be."""
        first_at = self.ledger.first_report_at
        if first_at is None or self.ledger.answered:
            return False
        return self._clock.mono() - first_at >= self._options.unanswered_s

    def _watch(self) -> None:
        """Tell the first answer once; an account that ended by an error of its own ends the run."""
        first_at = self.ledger.first_answer_at
        if first_at is not None and not self._told_first:
            self._told_first = True
            self._tell(Stage.FIRST_ANSWER, first_at)
        if self._failure is not None:
            raise SimulationFailed(f"the simulation itself broke: {self._failure!r}") from self._failure

    def _ended(self, run: asyncio.Task[None]) -> None:
        if not run.cancelled() and run.exception() is not None:
            self._failure = run.exception()

    def _tell(self, stage: Stage, at: float | None = None) -> None:
        ledger = self.ledger
        self._on_progress(
            Progress(
                stage=stage,
                elapsed_s=(self._clock.mono() if at is None else at) - self._began,
                accounts=len(self.ends),
                connected=sum(end.connected for end in self.ends),
                messages=self._options.messages,
                sent=ledger.sent,
                reports=ledger.reports,
                answered=ledger.answered,
                outstanding=ledger.outstanding,
            )
        )

    def _unconnected(self) -> str:
        missing = [end for end in self.ends if not end.connected]
        problems = {(address_of(end.account.url), end.problem or "no answer yet") for end in missing}
        told = "; ".join(
            f"{address}: {problem} ({_REMEDIES.get(problem, _START_WORKERS)})" for address, problem in sorted(problems)
        )
        return (
            f"{len(missing)} of {len(self.ends)} simulated accounts could not connect within"
            f" {self._options.connect_timeout_s:g} s. {told}"
        )


@asynccontextmanager
async def simulated(
    options: Options, on_progress: OnProgress = lambda _: None, *, clock: Clock | None = None
) -> AsyncIterator[Simulation]:
    """Accounts that connect and stay connected until the block is left, also after `play` has reported."""
    tasks = Tasks()
    simulation = Simulation(options, on_progress, clock or SystemClock(), tasks)
    try:
        yield simulation
    finally:
        await tasks.stop()
        await asyncio.gather(*(end.close() for end in simulation.ends))


async def run(
    options: Options, on_progress: OnProgress = lambda _: None, *, clock: Clock | None = None
) -> LedgerReport:
    """Connect, play, report, disconnect. Raises SimulationFailed where the accounts cannot connect."""
    async with simulated(options, on_progress, clock=clock) as simulation:
        await simulation.connect()
        return await simulation.play()

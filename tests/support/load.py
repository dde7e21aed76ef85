"""A load on workers without a port, while a test breaks their Redis, and the harness's own ledger of it.

Every message is reported by one account at each worker, some reports twice. Whether a message was answered is known
from what the ends were made to send; nothing comes from what the product says of itself but the books, which must
agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pallas import App, Context
from tests.support.proxy import lag
from tests.support.row_table import note
from tests.support.shards import Json, Shard, answered, group_message, shards
from tests.support.waiting import wait_until

QUICK: dict[str, Any] = {
    "lease_s": 1.5,
    "claim_wait_ms": 250,
    "redis_dead_after_ms": 800,
    "orphan_after_s": 2.0,
    "standby_look_s": 0.5,
    "presence_refresh_s": 1.0,
    "presence_purge_s": 4.0,
}
"""Times at about a tenth."""
GROUPS = 24
FIRST_GROUP = 7000


@dataclass(slots=True, frozen=True)
class Outcome:
    """What became of a load; times are seconds since it began."""

    asked: int
    lost: tuple[int, ...]
    doubled: tuple[int, ...]
    window: frozenset[int]
    """Messages that the fault may have cost, by the harness's own timeline."""
    stuck: int
    books: int
    unknown: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing outside the window is wrong."""
        wrong = {*self.lost, *self.doubled} - self.window
        return not (wrong or self.stuck or self.books)


class Load:
    """Messages with numbers, and who answered which, when."""

    def __init__(self, fleet: list[Shard], *, rate: float = 120.0) -> None:
        self._fleet = fleet
        self._rate = rate
        self._began = time.monotonic()
        self.asked: dict[int, float] = {}
        self.answers: dict[int, list[float]] = {}
        for place, shard in enumerate(fleet):
            shard.connect(f"1000{place + 1}", self._respond)

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self._began

    def _respond(self, call: Json) -> Json | None:
        if call["action"].startswith("send_"):
            text = call["params"]["message"][0]["data"]["text"]
            self.answers.setdefault(int(text.removeprefix("pong ")), []).append(self.now)
        return answered(call)

    def ask(self) -> int:
        """One message, reported by every account; each tenth report comes twice."""
        number = len(self.asked)
        group = FIRST_GROUP + number % GROUPS
        # In every fourth group no end reports sequences.
        seq = None if group % 4 == 0 else number + 1
        now = time.time()
        self.asked[number] = self.now
        for place, shard in enumerate(self._fleet):
            event = group_message(f"1000{place + 1}", f"ping {number}", seq=seq, at=now, group_id=group)
            shard.hear(event)
            if number % 10 == place:
                shard.hear(event)
        return number

    async def run(self, seconds: float) -> None:
        """Ask at the rate for so long."""
        limit = self.now + seconds
        while self.now < limit:
            self.ask()
            await lag(1 / self._rate)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Ask at the rate while the block runs."""
        asking = asyncio.ensure_future(self.run(3600))
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def answered_since(self, since: float) -> list[int]:
        """The messages that were asked and answered after that moment."""
        return [number for number, times in self.answers.items() if self.asked[number] > since and times[0] > since]

    async def resumed(self, within: float) -> float:
        """Wait until a message that is asked from now on was answered; how long that took."""
        since = self.now
        await wait_until(lambda: self.answered_since(since), within, saying="workers answer again by themselves")
        return self.now - since

    def between(self, first: float, last: float) -> frozenset[int]:
        """The messages asked in that time."""
        return frozenset(number for number, at in self.asked.items() if first <= at <= last)

    async def settled(self, window: frozenset[int] = frozenset(), *, within: float = 15.0) -> Outcome:
        """What became of it, once nothing is under way any more."""

        def at_rest() -> bool:
            missing = set(self.asked) - set(self.answers) - window
            return not missing and all(shard.is_quiet() for shard in self._fleet)

        with contextlib.suppress(AssertionError):
            await wait_until(at_rest, within)
        for shard in self._fleet:
            await shard.quiet(within)
        ended = await self._fleet[0].ended()
        limit = self.now + within
        while ended.open and self.now < limit:
            # What nobody goes on with is left to those who saw it too for a while, before it is ended.
            await lag(0.1)
            ended = await self._fleet[0].ended()
        counted = Counter({number: len(times) for number, times in self.answers.items()})
        return Outcome(
            asked=len(self.asked),
            lost=tuple(number for number in self.asked if not counted[number]),
            doubled=tuple(number for number, count in counted.items() if count > 1),
            window=window,
            stuck=ended.open,
            books=abs(ended.difference),
            unknown=ended.dead.get("sent_unknown", 0),
        )


def told(request: pytest.FixtureRequest, outcome: Outcome, row: str, fault: str, *, back_s: float = 0.0) -> None:
    """Keep the figures for the fault matrix, and fail where one of them is wrong."""
    outside = [len(set(numbers) - outcome.window) for numbers in (outcome.lost, outcome.doubled)]
    note(
        request,
        row=row,
        fault=fault,
        load=outcome.asked,
        lost=outside[0],
        doubled=outside[1],
        stuck=outcome.stuck,
        books=outcome.books,
        unknown=outcome.unknown,
        W=len(outcome.window),
        takeover_s=round(back_s, 2),
    )
    assert outcome.is_clean, outcome


def bot() -> App:
    """Answers `ping N` with `pong N`."""
    app = App("load")

    @app.command("ping")
    async def ping(ctx: Context) -> str:
        return f"pong {ctx.args}"

    return app


@contextlib.asynccontextmanager
async def loaded(
    url: str, folder: Path, *, workers: int = 2, rate: float = 120.0, **settings: Any
) -> AsyncIterator[Load]:
    """Workers that keep their leases, stand by and sweep, and a load for them."""
    async with shards(url, folder, *(bot() for _ in range(workers)), **{**QUICK, **settings}) as fleet:
        for shard in fleet:
            shard.live()
        yield Load(fleet, rate=rate)


@contextlib.asynccontextmanager
async def again_and_again(work: Callable[[], Awaitable[object] | object], seconds: float) -> AsyncIterator[None]:
    """Do `work` now and every so many seconds while the block runs."""

    async def repeat() -> None:
        while True:
            await asyncio.to_thread(work)
            await lag(seconds)

    repeating = asyncio.ensure_future(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        for result in await asyncio.gather(repeating, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

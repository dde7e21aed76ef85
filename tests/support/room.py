"""A group of the fake QQ whose every word a test writes; its accounts sit on several workers, and it keeps count."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from tests.support.books import StoredBooks
from tests.support.judge import Figures
from tests.support.mini_end import COSTUMES, MiniEnd, report
from tests.support.waiting import StillFalseError, wait_until

_QUIET_S = 0.3
_LATEST_S = 5.0


class Room:
    """One group; `say` has accounts report a message, and each message is owed one answer."""

    def __init__(self, number: int, ends: Sequence[MiniEnd]) -> None:
        self.group_id = 910_000_000 + number
        self.ends = list(ends)
        self.owed: Counter[str] = Counter()

    async def say(
        self, text: str, seq: int, by: Iterable[MiniEnd] | None = None, *, times: int = 1, owed: int = 1, **more: Any
    ) -> None:
        """A message of the group, reported by these accounts (all), each so many times."""
        self.owed[text.replace("ping", "pong", 1)] += owed
        for end in self.ends if by is None else by:
            for _ in range(times):
                await self.tell(end, text, seq, **more)

    async def tell(self, end: MiniEnd, text: str, seq: int, **more: Any) -> None:
        """One report, which is owed nothing by itself."""
        await end.tell(self.event(end, text, seq, **more))

    def event(self, end: MiniEnd, text: str, seq: int, **more: Any) -> dict[str, Any]:
        """A message as this account's end reports it."""
        return report(end.costume, end.self_id, text, seq, group_id=self.group_id, **more)

    def answers(self) -> Counter[str]:
        """What the accounts were made to send."""
        return Counter(text for end in self.ends for text in end.sent)

    async def rest(self) -> Counter[str]:
        """The answers, once all that is owed has come and no more follows for a while."""
        with contextlib.suppress(StillFalseError):
            await wait_until(lambda: not self.owed - self.answers(), _LATEST_S)
        before = self.answers()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_S):
                await wait_until(lambda: self.answers() != before, _LATEST_S)
        return self.answers()

    async def figures(self, books: StoredBooks) -> Figures:
        """The verdict; `books` are those of the whole deployment, at rest."""
        answers = await self.rest()
        return Figures(
            load=sum(self.owed.values()),
            lost=sum((self.owed - answers).values()),
            doubled=sum((answers - self.owed).values()),
            doubled_runs=0,
            stuck=books.open,
            books=abs(books.difference) + books.workers_difference,
            window=0,
            lost_in_window=0,
            unknown=books.unknown,
            otherwise={name: count for name, count in books.outcomes.items() if count and name != "handled"},
            doubled_keys=tuple((str(self.group_id), text) for text in answers - self.owed),
            lost_keys=tuple((str(self.group_id), text) for text in self.owed - answers),
        )


@contextlib.asynccontextmanager
async def room(number: int, urls: Sequence[str], token: str, accounts: int = 5) -> AsyncIterator[Room]:
    """Accounts of all costumes, in turn on each worker; their ids are this room's alone."""
    async with contextlib.AsyncExitStack() as stack:
        ends = [
            await stack.enter_async_context(
                MiniEnd(
                    urls[place % len(urls)],
                    COSTUMES[place % len(COSTUMES)],
                    str(910_000 + number * 100 + place),
                    token=token,
                )
            )
            for place in range(accounts)
        ]
        # Its version and name are asked first: from then on it is known what the end reports.
        await wait_until(lambda: all(len(end.asked) >= 2 for end in ends))
        yield Room(number, ends)

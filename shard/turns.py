"""The order of one group's messages: their handlers start as the messages arrived, while Redis decides in time.

Claims are asked on several connections at once and may be decided out of order. Whoever was decided early waits for
those before it, but never longer than a claim may take: order is worth a moment, not an answer.
"""

from __future__ import annotations

import asyncio


class Turn:
    """One message's place in the order of its group."""

    __slots__ = ("before", "is_over", "waiter")

    def __init__(self, before: Turn | None) -> None:
        self.before = before
        self.is_over = False
        self.waiter: asyncio.Future[None] | None = None

    async def come(self, limit_s: float) -> None:
        """Wait until all that came before have started or are somebody else's, for `limit_s` seconds at most."""
        before = self._earlier()
        if before is None:
            return
        try:
            async with asyncio.timeout(limit_s):
                while before is not None:
                    before.waiter = asyncio.get_running_loop().create_future()
                    await before.waiter
                    before = self._earlier()
        except TimeoutError:
            self.before = None

    def over(self, *, started: bool) -> None:
        """The message has started or, where it has not, is out of the order for another reason."""
        self.is_over = True
        if started:
            # Those before it had their time.
            self.before = None
        else:
            # Also where this worker wins nothing here for long, no chain of them may grow.
            self._earlier()
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def _earlier(self) -> Turn | None:
        """The nearest message before this one that is still undecided."""
        before = self.before
        while before is not None and before.is_over:
            before = before.before
        self.before = before
        return before

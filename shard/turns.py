"""The order of one group's messages: their handlers start as the messages arrived, while Redis decides in time.

Claims are asked on several connections at once and may be decided out of order. Whoever was decided early waits for
those before it, but never longer than a claim may take: order is worth a moment, not an answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_AT_ONCE = 64
"""So many of a row start in one turn of the loop: all of a long one would stop the links meanwhile."""


class _Row:
    """Those of one group whose turn may have come."""

    __slots__ = ("_is_due", "_next")

    def __init__(self) -> None:
        self._next: deque[Turn] = deque()
        self._is_due = False

    def add(self, turn: Turn) -> None:
        """Look at a turn soon; not at once, for a long row of them would be a stack as deep."""
        self._next.append(turn)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        try:
            for _ in range(_AT_ONCE):
                if not self._next:
                    break
                self._next.popleft().look()
        finally:
            # Also where one of them failed: those behind it must not wait for good.
            self._is_due = bool(self._next)
            if self._is_due:
                asyncio.get_running_loop().call_soon(self._look)


class Turn:
    """One message's place in the order of its group."""

    __slots__ = ("_limit", "_row", "_then", "before", "behind", "is_over")

    def __init__(self, before: Turn | None) -> None:
        self._row: _Row = _Row() if before is None else before._row  # noqa: SLF001  (the same class)
        self.before = before
        self.behind: Turn | None = None
        """Who waits for this one."""
        self.is_over = False
        self._then: Callable[[], None] | None = None
        self._limit: asyncio.TimerHandle | None = None

    def come(self, limit_s: float, then: Callable[[], None]) -> None:
        """Call `then` once all that came before have started or are another's; after `limit_s` seconds in any case."""
        before = self._earlier()
        if before is None:
            then()
            return
        self._then = then
        if before._then is None:  # noqa: SLF001  (the same class)
            # Else the limit of that one comes first.
            self._limit = asyncio.get_running_loop().call_later(limit_s, self._come)
        before.behind = self

    def over(self, *, started: bool) -> None:
        """The message has started or, where it has not, is out of the order for another reason."""
        self.is_over = True
        if started:
            # Those before it had their time.
            self.before = None
        else:
            # Also where this worker wins nothing here for long, no chain of them may grow.
            self._earlier()
        behind, self.behind = self.behind, None
        if behind is not None:
            self._row.add(behind)

    def look(self) -> None:
        """Whether the turn has come, now that one before it is over."""
        before = self._earlier()
        if before is None:
            self._come()
        elif self._then is not None:
            before.behind = self

    def _come(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            if self._limit is not None:
                self._limit.cancel()
            self.before = None
            then()

    def _earlier(self) -> Turn | None:
        """The nearest message before this one that is still undecided."""
        before = self.before
        while before is not None and before.is_over:
            before = before.before
        self.before = before
        return before

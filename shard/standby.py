"""Messages that another worker holds and has not ended: kept here until it is known that it did.

The loser of a claim is the only one who can still answer where the winner dies. It looks in batches, and where the
holder's epoch is dead it becomes the holder in one compare-and-set. Nothing is taken whose effect may have begun; it is
kept even so, for its holder takes an effect back that it surely did not send.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from pallas.claim import Verdict, epoch_of
from pallas.claims import Claims
from pallas.clock import Clock
from pallas.metrics import Meters
from shard.lapses import Lapses

if TYPE_CHECKING:
    from pallas.claim import Claim
    from shard.report import Report

_log = structlog.get_logger()
_PER_LOOK = 512
_ENDED = frozenset({b"d", b"u"})
_OVER = _ENDED | {b""}
"""States of an entry that nobody can take any more: ended, or remembered no more."""
_LONGEST = 2.0
"""Looks at one message become rarer up to so many times the first wait: most holders only take their time."""


class _Waiting:
    """One message that stands by."""

    __slots__ = ("claim", "due", "report", "wait")

    def __init__(self, report: Report, claim: Claim, due: float, wait: float) -> None:
        self.report = report
        self.claim = claim
        self.due = due
        self.wait = wait


class Standby:
    """The standing-by messages of one worker.

    `take_up` goes on with a message that has become ours; `may_answer` says whether an account here can and the message
    is young enough: None means never again.
    """

    def __init__(
        self,
        *,
        claims: Claims,
        lapses: Lapses,
        clock: Clock,
        meters: Meters,
        take_up: Callable[[Report, Claim], None],
        may_answer: Callable[[Report], bool | None],
        max_messages: int,
        look_s: float,
    ) -> None:
        self._claims = claims
        self._lapses = lapses
        self._clock = clock
        self._meters = meters
        self._take_up = take_up
        self._may_answer = may_answer
        self._max_messages = max_messages
        self._look_s = look_s
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, report: Report, claim: Claim) -> None:
        """Stand by for a message that was lost, unless it has ended."""
        if claim.holder[:1] in _ENDED:
            return
        if len(self._waiting) >= self._max_messages:
            self._meters.standby_overflow += 1
            return
        self._waiting.append(_Waiting(report, claim, self._clock.mono() + self._look_s, self._look_s))

    async def look(self) -> None:
        """Look once at what is due, and take what nobody can answer any more. Raises RedisError."""
        await self._lapses.look()
        now = self._clock.mono()
        waiting, self._waiting = self._waiting, deque()
        due: list[_Waiting] = []
        for one in waiting:
            if len(due) < _PER_LOOK and (one.due <= now or self._is_free(one)):
                due.append(one)
            else:
                self._waiting.append(one)
        said = await self._claims.look([one.claim for one in due])
        before = self._meters.taken_over
        await asyncio.gather(*(self._decide(one, seen=seen) for one, seen in zip(due, said, strict=True)))
        taken = self._meters.taken_over - before
        if taken:
            _log.warning("standby.taken_over", messages=taken, hint="their workers died or gave them back")
        self._meters.standby = len(self._waiting)

    def _is_free(self, one: _Waiting) -> bool:
        holder = one.claim.holder
        return bool(holder) and self._lapses.is_dead(epoch_of(holder))

    async def _decide(self, one: _Waiting, *, seen: bool) -> None:
        claim = one.claim
        if seen:
            if claim.holder[:1] in _OVER:
                return
            may = self._may_answer(one.report)
            if may is None:
                return
            claimed = claim.holder[:1] == b"c"
            if claimed and may and self._is_free(one) and await self._claims.take_over(claim) is Verdict.WON:
                self._meters.taken_over += 1
                self._take_up(one.report, claim)
                return
            one.wait = min(one.wait * 2, self._look_s * _LONGEST)
        one.due = self._clock.mono() + one.wait
        self._waiting.append(one)

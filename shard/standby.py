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
_LONGEST = 2.0
"""Looks at one message become rarer up to so many times the first wait: most holders only take their time."""


class _Waiting:
    """One message that stands by."""

    __slots__ = ("claim", "due", "report", "tried", "wait")

    def __init__(self, report: Report, claim: Claim, due: float, wait: float) -> None:
        self.report = report
        self.claim = claim
        self.due = due
        self.wait = wait
        self.tried = False
        """Whether we could not have it although its holder was dead: then there is no hurry."""


class Standby:
    """The standing-by messages of one worker.

    `take_up` goes on with a message that has become ours; `may_answer` says whether an account here can and the message
    is young enough: None means never again. `has_room`: this worker can run more handlers for now.
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
        has_room: Callable[[], bool],
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
        self._has_room = has_room
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, report: Report, claim: Claim) -> None:
        """Stand by for a message that was lost or given back, unless it has ended.

        What this worker gave back is left to the others first: their looks are sooner.
        """
        if claim.holder[:1] in _ENDED:
            return
        if len(self._waiting) >= self._max_messages:
            self._meters.standby_overflow += 1
            return
        wait = self._look_s * (_LONGEST + 1 if claim.released else 1)
        self._waiting.append(_Waiting(report, claim, self._clock.mono() + wait, self._look_s))

    async def look(self) -> None:
        """Look at what is due, and take what nobody can answer any more. Raises RedisError."""
        await self._lapses.look()
        before = self._meters.taken_over
        # What is free goes first, and all of it: the others end it before long.
        while await self._look_at(self._is_free):
            pass
        now = self._clock.mono()
        await self._look_at(lambda one: one.due <= now)
        self._meters.standby = len(self._waiting)
        taken = self._meters.taken_over - before
        if taken:
            _log.warning("standby.taken_over", messages=taken, hint="their workers died or gave them back")

    async def _look_at(self, wanted: Callable[[_Waiting], bool]) -> bool:
        """Look at some that are wanted; False where none was, or no more can be answered for the moment."""
        chosen: list[_Waiting] = []
        others: deque[_Waiting] = deque()
        for one in self._waiting:
            (chosen if len(chosen) < _PER_LOOK and wanted(one) else others).append(one)
        if not chosen:
            return False
        self._waiting = others
        try:
            said = await self._claims.look([one.claim for one in chosen])
        except BaseException:
            self._waiting.extend(chosen)
            raise
        await asyncio.gather(*(self._decide(one, seen=seen) for one, seen in zip(chosen, said, strict=True)))
        return self._has_room()

    def _is_free(self, one: _Waiting) -> bool:
        """Whether the holder last seen is dead, and nobody else has the first right."""
        holder = one.claim.holder
        if not holder or not self._lapses.is_dead(epoch_of(holder)):
            return False
        return one.due <= self._clock.mono() or not (one.claim.released or one.tried)

    async def _decide(self, one: _Waiting, *, seen: bool) -> None:
        found = Verdict.UNKNOWN
        try:
            if seen:
                found = await self._found(one)
        finally:
            if found is Verdict.UNKNOWN:
                self._keep_on(one)
        if found is Verdict.WON:
            self._meters.taken_over += 1
            self._take_up(one.report, one.claim)

    def _keep_on(self, one: _Waiting) -> None:
        one.tried = bool(one.claim.holder) and self._lapses.is_dead(epoch_of(one.claim.holder))
        one.wait = min(one.wait * 2, self._look_s * _LONGEST)
        one.due = self._clock.mono() + one.wait
        self._waiting.append(one)

    async def _found(self, one: _Waiting) -> Verdict:
        """Take the message if it is to be had; LOST where there is nothing to wait for any more, else UNKNOWN."""
        claim, state = one.claim, one.claim.holder[:1]
        # Taken earlier, and the reply was lost: asked again, it is ours, whatever came between.
        ours = bool(claim.token) and claim.holder == b"c" + claim.token
        may = self._may_answer(one.report)
        if state in _ENDED or (may is None and not ours):
            return Verdict.LOST
        verdict = Verdict.UNKNOWN
        if not state:
            # Remembered no more. Only who had held it, and saw nobody take it since, knows that nothing was sent.
            if not claim.released:
                return Verdict.LOST
            verdict = await self._claims.win_back(claim, one.report.body)
        elif ours or (state == b"c" and may and self._lapses.is_dead(epoch_of(claim.holder))):
            verdict = await self._claims.take_over(claim)
        # Who came first may die as well: it is waited for.
        return Verdict.WON if verdict is Verdict.WON else Verdict.UNKNOWN

"""The way of one message through a worker; the order of its steps stands here and nowhere else.

At the door nothing is awaited: a report is refused, recognised as a copy or ignored in the turn it was read in. What
is left is one message, new to this worker: it is claimed (one round trip to Redis), and the winner's handler runs. Each
step says *go on* (None), *stop* or *wait*, and every stop is counted, so that the books balance. Who waits has no task:
Redis' replies and the ends of handlers come in batches, and each goes on with its report where the way was left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from pallas.claim import Verdict
from pallas.claims import Claims
from pallas.errors import LeaseLost, NotSent, SendUnknown
from pallas.failure import describe
from pallas.faults import Faults, Point
from pallas.identity import is_stale
from pallas.levels import Level, People
from pallas.model import Lane, Message, Notice, Reason
from pallas.onebot.link import CHANNEL_BROKE
from shard import stops
from shard.actions import Calls, RunActions
from shard.matching import Standing, Table
from shard.notices import NoticeTable
from shard.report import MessageReport, NoticeReport, Report
from shard.stops import Column, Step, Stop, Wait

if TYPE_CHECKING:
    from pallas.app import App
    from pallas.claim import Claim
    from pallas.clock import Clock
    from pallas.keys import Keys
    from pallas.metrics import Meters
    from pallas.tasks import Tasks
    from shard.fleet import Fleet
    from shard.roster import Account
    from shard.runner import Runner
    from shard.standby import Standby
    from shard.turns import Turn

_log = structlog.get_logger()
_MOST_RETURNS = 5
"""A message that this worker gave back so often is left to the others: its own links carry nothing."""
_IN_TURN_S = 0.3
"""So long a message waits for those before it in its group: as long as a claim that is answered at all."""
_LATEST_S = 2**32 - 1
"""Claims keep times in 32 bits; an end that reports a later one is wrong, but still the same for all its reports."""
_ENDS = {Reason.OK: stops.HANDLED, Reason.HANDLER_TIMEOUT: stops.HANDLER_TIMEOUT, Reason.SHUTDOWN: stops.SHUTDOWN}
"""How a run that raised nothing ends its message."""


class Pipeline:
    """Carries reports; `max_pending` bounds those that Redis has not decided and those whose handler runs.

    `standby` keeps what another worker holds; it is set once both are made. `is_alone`: no other worker lives.
    """

    standby: Standby

    def __init__(
        self,
        *,
        app: App,
        fleet: Fleet,
        keys: Keys,
        table: Table,
        notices: NoticeTable,
        claims: Claims,
        calls: Calls,
        runner: Runner,
        people: People,
        clock: Clock,
        meters: Meters,
        tasks: Tasks,
        stale_s: float,
        notice_stale_s: float,
        max_pending: int,
        is_alone: Callable[[], bool],
        faults: Faults | None = None,
    ) -> None:
        self._app = app
        self._fleet = fleet
        self._keys = keys
        self._table = table
        self._notices = notices
        self._claims = claims
        self._calls = calls
        self._runner = runner
        self._people = people
        self._clock = clock
        self._meters = meters
        self._tasks = tasks
        self._stale_s = stale_s
        self._notice_stale_s = notice_stale_s
        self._max_pending = max_pending
        self._is_alone = is_alone
        self._faults = faults
        self._message_door = (self._room, self._from_us, self._too_old, self._seen_here, self._wanted)
        self._notice_door = (self._room, self._notice_too_old, self._notice_wanted, self._notice_seen_here)
        self._lanes = (self._permitted, self._handled)
        self._way = (self._claimed, *self._lanes)
        self.draining = False
        self.is_over = False
        """Nothing is asked again: the worker has stopped."""

    def message(self, account: Account, message: Message) -> None:
        """Take one report of a message in; returns before anything is awaited."""
        report = MessageReport(account, message, self._clock.mono())
        self._arrive(report, self._message_door)

    def notice(self, account: Account, notice: Notice) -> None:
        """Take one report of a notice in."""
        time_s = min(notice.time_s, _LATEST_S) or int(self._clock.wall_s())
        report = NoticeReport(account, notice, self._clock.mono(), time_s)
        self._arrive(report, self._notice_door)

    def _arrive(self, report: Any, door: tuple[Callable[[Any], Stop | None], ...]) -> None:
        self._meters.arrived += 1
        if self._faults is not None:
            self._faults.hit(Point.READ)
        for step in door:
            stop = step(report)
            if stop is not None:
                self._enter(stop)
                return
        self._meters.pending += 1
        if self._faults is not None:
            self._faults.hit(Point.MATCHED)
        self._go(report, self._way, self._stop)

    def take_up(self, report: Report, claim: Claim) -> None:
        """Go on with a message that another held until now: from its lane on, for all before was decided."""
        report.claim = claim
        if report.ending is not None:
            # Its handler had run to the end here, before this worker's epoch lapsed.
            self._stop(report, report.ending)
        elif not self._patience(report):
            # Taken in time, heard of too late: nobody expects an answer any more.
            self._stop(report, stops.TOO_LATE)
        else:
            self._go(report, self._lanes, self._stop)

    def may_answer(self, report: Report) -> bool | None:
        """Whether an account of this worker can speak for the message; None where it is too late for an answer."""
        if self.draining or not self._patience(report):
            return None
        return self._can_speak(report)

    def _can_speak(self, report: Report) -> bool:
        return any(self._calls.speaks(bot_id) for bot_id in report.observers())

    @classmethod
    def _go(cls, report: Report, way: tuple[Step, ...], over: Callable[[Any, Stop], None]) -> None:
        report.way, report.over = iter(way), over
        cls._go_on(report)

    @staticmethod
    def _go_on(report: Report) -> None:
        for step in report.way:
            said = step(report)
            if said is not None:
                if isinstance(said, Stop):
                    report.over(report, said)
                return

    def _stop(self, report: Report, stop: Stop) -> None:
        claim = report.claim
        if claim is None:
            self._enter(stop)
        elif stop.column is Column.ENDED and self._claims.may_end(claim):
            self._enter(stop)
            if stop is stops.SENT_UNKNOWN:
                self._claims.unknown(claim, at=self._clock.wall_s(), **report.fields())
            else:
                self._claims.end(claim, stop.outcome, stop.reason)
        else:
            # A run that did nothing others can see, under an epoch that lapsed: it counts if nobody took the message.
            report.ending = stop if stop.column is Column.ENDED else None
            self._enter(stops.GIVEN_UP if report.ending is not None else stop)
            report.claim = None
            self._claims.release(claim)
            report.returns += stop is stops.NO_LINK
            if report.returns <= _MOST_RETURNS:
                self.standby.keep(report, claim)

    def _enter(self, stop: Stop) -> None:
        meters = self._meters
        match stop.column:
            case Column.COPY:
                meters.copies[stop.reason] += 1
            case Column.ENDED:
                meters.outcomes[stop.outcome, stop.reason] += 1
            case Column.IGNORED:
                meters.ignored += 1
            case Column.REFUSED:
                meters.refused[stop.reason] += 1
            case Column.RELEASED:
                meters.released[stop.reason] += 1

    def has_room(self) -> bool:
        """Whether another message may be taken in hand."""
        return self._meters.pending + len(self._runner) < self._max_pending

    def _room(self, _: Report) -> Stop | None:
        if self.draining:
            return stops.DRAINING
        return None if self.has_room() else stops.OVERLOAD

    def _from_us(self, report: MessageReport) -> Stop | None:
        message = report.message
        if message.self_sent:
            return stops.OWN_MESSAGE
        return stops.FLEET_SENDER if message.user_id in self._fleet else None

    def _too_old(self, report: MessageReport) -> Stop | None:
        message, now = report.message, self._clock.wall_s()
        if not 0 < message.time_s <= _LATEST_S:
            message.time_s = _LATEST_S if message.time_s else int(now)
        return stops.STALE if is_stale(message.time_s, now, self._stale_s) else None

    def _seen_here(self, report: MessageReport) -> Stop | None:
        report.standing, report.entry = self._table.observe(report.message, report.space(), report.arrived)
        return stops.REPLAY if report.standing is Standing.AGAIN else None

    def _wanted(self, report: MessageReport) -> Stop | None:
        entry = report.entry
        if report.standing is Standing.NEW:
            entry.route = self._app.route(report.message)
        route = entry.route
        if report.standing is Standing.ANOTHER:
            if route is not None and route.lane is Lane.FANOUT:
                report.route = route
                self._answer_too(report)
            return stops.SAME_WORKER
        if route is None:
            return stops.NO_HANDLER if report.standing is Standing.NEW else stops.SAME_WORKER
        report.route = route
        report.turn = entry.group.next_turn()
        return None

    def _notice_too_old(self, report: NoticeReport) -> Stop | None:
        return stops.STALE if is_stale(report.time_s, self._clock.wall_s(), self._notice_stale_s) else None

    def _notice_wanted(self, report: NoticeReport) -> Stop | None:
        route = self._app.route_notice(report.notice)
        if route is None:
            return stops.NO_HANDLER
        report.route = route
        return None

    def _notice_seen_here(self, report: NoticeReport) -> Stop | None:
        space = report.space()
        standing, report.sighting = self._notices.observe(
            report.notice.bot_id, space, report.body(), report.time_s, report.arrived
        )
        if standing is not Standing.NEW:
            return stops.REPLAY if standing is Standing.AGAIN else stops.SAME_WORKER
        report.bucket = self._keys.bucket(space)
        return None

    def _claimed(self, report: Report) -> Wait:
        try:
            claim = report.attempt()
            if self._faults is not None:
                self._faults.hit(Point.CLAIMING)
            self._claims.ask(claim, report.body, partial(self._answered, report, claim))
        except BaseException:
            self._meters.pending -= 1
            raise
        return Wait.FOR_REDIS

    def _answered(self, report: Report, claim: Claim, answer: Any) -> None:
        verdict = self._claims.verdict(claim, answer)
        if verdict is not None:
            self._meters.pending -= 1
            self._decided(report, claim, verdict)
        elif not self.is_over:
            self._tasks.start(self._ask_on(report, claim, answer), "message")

    async def _ask_on(self, report: Report, claim: Claim, answer: Any) -> None:
        try:
            verdict = await self._claims.take(claim, report.body, self._patience(report), answer=answer)
        finally:
            self._meters.pending -= 1
        self._decided(report, claim, verdict)

    def _decided(self, report: Report, claim: Claim, verdict: Verdict) -> None:
        if claim.body is not None and isinstance(report, MessageReport) and report.standing is Standing.NEW:
            self._table.compared(report.message, claim.gap_s, is_one=verdict is Verdict.LOST)
        turn = report.turn
        if verdict is Verdict.WON:
            self._meters.distinct += 1
            report.claim = claim
            if self._faults is not None:
                self._faults.hit(Point.CLAIMED)
            if turn is None:
                self._go_on(report)
            else:
                turn.come(_IN_TURN_S, partial(self._in_turn, report, turn))
            return
        if turn is not None:
            turn.over(started=False)
        if verdict is Verdict.UNKNOWN:
            report.over(report, stops.REDIS_UNAVAILABLE)
            return
        report.over(report, stops.SAME_WORKER if report.standing is not Standing.NEW else stops.OTHER_SHARD)
        if report.route.lane is Lane.FANOUT:
            self._answer_too(report)
        elif report.standing is Standing.NEW:
            self.standby.keep(report, claim)

    def _in_turn(self, report: Report, turn: Turn) -> None:
        try:
            self._go_on(report)
        finally:
            turn.over(started=True)

    def _patience(self, report: Report) -> float:
        """Seconds until the report is too old to be answered."""
        limit = self._stale_s if isinstance(report, MessageReport) else self._notice_stale_s
        return max(0.0, min(limit, report.said_at + limit - self._clock.wall_s()))

    def _permitted(self, report: Report) -> Stop | None:
        needed = report.route.handler.level
        return None if needed is Level.EVERYONE or report.level(self._people) >= needed else stops.NOT_PERMITTED

    def _handled(self, report: Report) -> Wait:
        handler = report.route.handler
        # A fan-out run speaks for its own account alone.
        observers = () if report.route.lane is Lane.FANOUT else report.observers()
        actions = RunActions(self._calls, report.account.bot_id, report.claim, report.fields, observers)
        self._meters.to_handler.observe(self._clock.mono() - report.arrived)
        if self._faults is not None:
            self._faults.hit(Point.RUNNING)
        self._runner.start(handler, report.context(actions), partial(self._ran, report, actions))
        return Wait.FOR_HANDLER

    def _ran(self, report: Report, actions: RunActions, reason: Reason, error: Exception | None) -> None:
        actions.end()
        if error is None:
            report.over(report, self._ended(report, actions, reason))
        else:
            report.over(report, self._failed(report, actions, error))

    def _ended(self, report: Report, actions: RunActions, reason: Reason) -> Stop:
        if self._is_unbegun(report):
            if actions.was_fenced:
                # The handler took the refusal for an answer; nobody has been answered.
                return stops.GIVEN_UP
            if actions.unsent is not None and self._may_go_back(report, actions, actions.unsent):
                return stops.NO_LINK
            if reason is Reason.SHUTDOWN and not self._is_alone():
                return stops.HANDED_BACK
        if reason is not Reason.OK:
            source = report.route.handler.source
            _log.error("handler.cut_off", **report.fields(), source=source, reason=reason.value)
        # Also where the handler caught the error and went on: what may have been sent must stay visible.
        return stops.SENT_UNKNOWN if actions.in_doubt else _ENDS[reason]

    def _failed(self, report: Report, actions: RunActions, error: Exception) -> Stop:
        if self._is_unbegun(report):
            # Nobody outside has seen anything of this run: whoever else saw the message may still answer it.
            if isinstance(error, LeaseLost):
                return stops.GIVEN_UP
            if isinstance(error, NotSent) and self._may_go_back(report, actions, error):
                return stops.NO_LINK
        if isinstance(error, LeaseLost):
            return stops.SENT_UNKNOWN if actions.in_doubt else stops.LEASE_LOST
        # The author's mistake is an outcome; it must not end anything but this run.
        # Its words may be what a person wrote: only its kind and its place are told.
        event = "send.unknown" if isinstance(error, SendUnknown) and actions.in_doubt else "handler.failed"
        _log.error(event, **report.fields(), source=report.route.handler.source, **describe(error))
        return stops.SENT_UNKNOWN if actions.in_doubt else stops.HANDLER_ERROR

    def _may_go_back(self, report: Report, actions: RunActions, error: NotSent) -> bool:
        """Whether the message is better off with whoever else saw it: no link of ours carried anything of it."""
        return actions.found_nobody or error.retcode == CHANNEL_BROKE or not self._can_speak(report)

    @staticmethod
    def _is_unbegun(report: Report) -> bool:
        return report.claim is not None and not report.claim.begun

    def _answer_too(self, report: Report) -> None:
        """A fan-out handler runs for every account; the message's outcome is the claim holder's."""
        self._go(report, self._lanes, self._answered_too)

    def _answered_too(self, _: Report, stop: Stop) -> None:
        if stop is stops.SENT_UNKNOWN:
            # No outcome of the message's: that has one already. Kept apart, so that the books still balance.
            self._meters.events["fanout_unknown"] += 1

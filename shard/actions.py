"""What a handler may do, carried from the handlers' loop to the sockets' loop.

Before the first act that others can see, the effect is recorded under the claim's token; before every act the lease
is looked at. A run that ended can do nothing more. An act whose result is unknown is remembered, never repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from pallas.clock import Clock
from pallas.context import Sent
from pallas.errors import ActionFailed, AppError, LeaseLost, NotSent, SendUnknown
from pallas.faults import Point
from pallas.onebot.fields import message_id_of
from pallas.onebot.link import NOT_CONNECTED
from pallas.onebot.verdict import data_of
from pallas.segments import to_wire

if TYPE_CHECKING:
    from pallas.claim import Claim
    from pallas.claims import Claims
    from pallas.faults import Faults
    from pallas.metrics import Meters
    from pallas.segments import Segment
    from shard.roster import Roster

_QUERIES = ("get_", "can_", "_get_", "fetch_", "check_")


class Calls:
    """Calls through the accounts of this worker; shared by all runs."""

    def __init__(
        self,
        roster: Roster,
        claims: Claims,
        meters: Meters,
        clock: Clock,
        *,
        timeout_s: float,
        is_leased: Callable[[], bool],
        faults: Faults | None = None,
    ) -> None:
        self.roster = roster
        self.claims = claims
        self.meters = meters
        self.clock = clock
        self.timeout_s = timeout_s
        self.is_leased = is_leased
        self.faults = faults
        self.loop = asyncio.get_running_loop()

    def speaks(self, bot_id: str) -> bool:
        """Whether an account has an open link that takes actions."""
        account = self.roster.get(bot_id)
        return account is not None and account.speaker() is not None

    async def call(self, bot_id: str, name: str, params: Mapping[str, Any]) -> Any:
        """Have an account's end act; the data of its answer. Raises NotSent, SendUnknown or ActionFailed."""
        account = self.roster.get(bot_id)
        link = account.speaker() if account else None
        if account is None or link is None:
            raise NotSent(f"account {bot_id} has no open link to this worker: {name} was not sent", NOT_CONNECTED)
        try:
            written = None if self.faults is None else partial(self.faults.hit, Point.SENT)
            reply = await link.call(name, params, self.timeout_s, written)
            if self.faults is not None:
                self.faults.hit(Point.ANSWERED)
            data = data_of(reply, link.end, bot_id, name)
        except ActionFailed as error:
            kind = {NotSent: "not_sent", SendUnknown: "unknown"}.get(type(error), "refused")
            self.meters.sends[kind] += 1
            raise
        self.meters.sends["done"] += 1
        return data


class RunActions:
    """The actions of one run of a handler; made on the sockets' loop, used on the handlers'."""

    __slots__ = (
        "_acted",
        "_bot_id",
        "_calls",
        "_claim",
        "_doubts",
        "_ended",
        "_observers",
        "found_nobody",
        "log_fields",
        "unsent",
        "was_fenced",
    )

    def __init__(
        self,
        calls: Calls,
        bot_id: str,
        claim: Claim | None,
        log_fields: Callable[[], Mapping[str, str]],
        observers: Sequence[str] = (),
    ) -> None:
        """`observers` are the accounts of this worker that reported the event; the list grows as they do."""
        self._calls = calls
        self._bot_id = bot_id
        self._claim = claim
        self._observers = observers
        self._ended = False
        self._acted = False
        self._doubts = 0
        self.unsent: NotSent | None = None
        """The last call that no link carried."""
        self.found_nobody = False
        """Whether no account that saw the event had a link for an answer, whatever came up since."""
        self.was_fenced = False
        """Whether a call was refused because the message may be another's by now."""
        self.log_fields = log_fields

    @property
    def in_doubt(self) -> bool:
        """Whether a call may have been written whose result is not known."""
        return self._doubts > 0

    @property
    def log(self) -> Any:
        """A logger bound to the event's ids."""
        return structlog.get_logger().bind(**self.log_fields())

    def end(self) -> None:
        """The run is over: what comes later is refused."""
        self._ended = True

    async def deliver(self, content: tuple[Segment, ...], *, group_id: str, user_id: str) -> Sent:
        """Send as the answering account."""
        if group_id:
            name, params = "send_group_msg", {"group_id": group_id, "message": to_wire(content)}
        else:
            name, params = "send_private_msg", {"user_id": user_id, "message": to_wire(content)}
        sent: Sent = await self._across(self._send(name, params))
        return sent

    async def call(self, action: str, params: Mapping[str, Any], *, as_bot: str | None) -> Any:
        """Have an account's end perform an action."""
        return await self._across(self._act(as_bot or self._bot_id, action, params))

    async def _across(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._calls.loop))

    async def _send(self, name: str, params: Mapping[str, Any]) -> Sent:
        mute: set[str] = set()
        while True:
            self._choose_speaker(mute)
            bot_id = self._bot_id
            try:
                data = await self._act(bot_id, name, params)
            except NotSent:
                # Surely not sent, for its link carries nothing: another account that saw the event may speak for it.
                mute.add(bot_id)
                if self._ended or not self._choose_speaker(mute):
                    self.found_nobody = True
                    raise
                continue
            message_id = message_id_of(data.get("message_id")) if isinstance(data, dict) else ""
            return Sent(message_id, bot_id)

    def _choose_speaker(self, mute: AbstractSet[str]) -> bool:
        """Keep the answering account while it has a link, else take another one that saw the event; none of `mute`."""
        able = (one for one in (self._bot_id, *self._observers) if one not in mute and self._calls.speaks(one))
        other = next(able, None)
        if other is None:
            return False
        self._bot_id = other
        return True

    async def _act(self, bot_id: str, name: str, params: Mapping[str, Any]) -> Any:
        if self._ended:
            raise NotSent(f"the handler has ended: {name} was not sent", NOT_CONNECTED)
        calls = self._calls
        if name.startswith(_QUERIES):
            return await calls.call(bot_id, name, params)
        if not calls.speaks(bot_id):
            # Nothing is recorded as begun that cannot be sent.
            try:
                return await calls.call(bot_id, name, params)
            except NotSent as error:
                self.unsent = error
                raise
        try:
            await self._authorised(bot_id, name)
        except LeaseLost:
            self.was_fenced = True
            raise
        if self._ended:
            raise NotSent(f"the handler has ended: {name} was not sent", NOT_CONNECTED)
        # Counted, not flagged: a handler may have several calls on their way at once.
        self._doubts += 1
        try:
            data = await calls.call(bot_id, name, params)
        except SendUnknown:
            raise
        except NotSent as error:
            self.unsent = error
            self._doubts -= 1
            if self._claim is not None and not (self._doubts or self._acted):
                # Surely nobody has seen anything yet: the message may still be given to somebody else.
                self._claim.begun = False
            raise
        except (ActionFailed, AppError):
            self._doubts -= 1
            self._acted = True
            raise
        self._doubts -= 1
        self._acted = True
        account = calls.roster.get(bot_id)
        if account is not None:
            account.last_sent_at = calls.clock.wall_s()
        return data

    async def _authorised(self, bot_id: str, name: str) -> None:
        calls = self._calls
        if self._claim is None:
            # A fan-out run holds no entry; it sends under the worker's lease all the same.
            if not calls.is_leased():
                calls.meters.fenced()
                raise LeaseLost(f"account {bot_id}: this worker's lease may have lapsed, {name} was not sent")
        elif self._claim.begun:
            calls.claims.check(self._claim)
        else:
            await calls.claims.effect(self._claim)

"""What a handler may do, carried from the handlers' loop to the sockets' loop.

Before the first act that others can see, the effect is recorded under the claim's token; before every act the lease
is looked at. A run that ended can do nothing more. An act whose result is unknown is remembered, never repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import structlog

from pallas.clock import Clock
from pallas.context import Sent
from pallas.errors import ActionFailed, AppError, LeaseLost, NotSent, SendUnknown
from pallas.onebot.fields import message_id_of
from pallas.onebot.link import NOT_CONNECTED
from pallas.onebot.verdict import data_of
from pallas.segments import to_wire

if TYPE_CHECKING:
    from pallas.claims import Claim, Claims
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
    ) -> None:
        self.roster = roster
        self.claims = claims
        self.meters = meters
        self.clock = clock
        self.timeout_s = timeout_s
        self.is_leased = is_leased
        self.loop = asyncio.get_running_loop()

    async def call(self, bot_id: str, name: str, params: Mapping[str, Any]) -> Any:
        """Have an account's end act; the data of its answer. Raises NotSent, SendUnknown or ActionFailed."""
        account = self.roster.get(bot_id)
        link = account.speaker() if account else None
        if account is None or link is None:
            raise NotSent(f"account {bot_id} has no open link to this worker: {name} was not sent", NOT_CONNECTED)
        try:
            reply = await link.call(name, params, self.timeout_s)
            data = data_of(reply, link.end, bot_id, name)
        except ActionFailed as error:
            kind = {NotSent: "not_sent", SendUnknown: "unknown"}.get(type(error), "refused")
            self.meters.sends[kind] += 1
            raise
        self.meters.sends["done"] += 1
        return data


class RunActions:
    """The actions of one run of a handler; made on the sockets' loop, used on the handlers'."""

    __slots__ = ("_bot_id", "_calls", "_claim", "_doubts", "_ended", "_started", "log_fields")

    def __init__(
        self, calls: Calls, bot_id: str, claim: Claim | None, log_fields: Callable[[], Mapping[str, str]]
    ) -> None:
        self._calls = calls
        self._bot_id = bot_id
        self._claim = claim
        self._started = False
        self._ended = False
        self._doubts = 0
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
        data = await self._across(self._act(self._bot_id, name, params))
        message_id = message_id_of(data.get("message_id")) if isinstance(data, dict) else ""
        return Sent(message_id, self._bot_id)

    async def call(self, action: str, params: Mapping[str, Any], *, as_bot: str | None) -> Any:
        """Have an account's end perform an action."""
        return await self._across(self._act(as_bot or self._bot_id, action, params))

    async def _across(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._calls.loop))

    async def _act(self, bot_id: str, name: str, params: Mapping[str, Any]) -> Any:
        if self._ended:
            raise NotSent(f"the handler has ended: {name} was not sent", NOT_CONNECTED)
        calls = self._calls
        if name.startswith(_QUERIES):
            return await calls.call(bot_id, name, params)
        if self._claim is None:
            # A fan-out run holds no entry; it sends under the worker's lease all the same.
            if not calls.is_leased():
                calls.meters.fenced()
                raise LeaseLost(f"account {bot_id}: this worker's lease may have lapsed, {name} was not sent")
        else:
            if self._started:
                calls.claims.check(self._claim)
            else:
                await calls.claims.effect(self._claim)
                self._started = True
            if self._ended:
                raise NotSent(f"the handler has ended: {name} was not sent", NOT_CONNECTED)
        # Counted, not flagged: a handler may have several calls on their way at once.
        self._doubts += 1
        try:
            data = await calls.call(bot_id, name, params)
        except SendUnknown:
            raise
        except (ActionFailed, AppError):
            self._doubts -= 1
            raise
        self._doubts -= 1
        account = calls.roster.get(bot_id)
        if account is not None:
            account.last_sent_at = calls.clock.wall_s()
        return data

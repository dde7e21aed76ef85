"""Where frames of protocol ends arrive: each is read once and handed to whom it concerns.

A frame that cannot be used is counted and logged at a bounded rate, and its link is kept where the protocol allows:
closing a link loses the messages of the gap, and the end would only come back with the same frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from pallas.clock import Clock
from pallas.errors import ActionFailed, BadFrame, RedisError
from pallas.log_limit import LimitedLog, LogLimit
from pallas.metrics import Meters
from pallas.model import ActionReply, Heartbeat, Lifecycle, Message, Notice, Reason, Request
from pallas.onebot.decode import Limits
from pallas.onebot.ends import identify
from pallas.onebot.link import Link, Role
from pallas.onebot.listener import BAD_DATA, BadLink
from pallas.onebot.wire import parse
from pallas.tasks import Tasks
from shard.actions import Calls
from shard.fleet import Fleet
from shard.pipeline import Pipeline
from shard.presence import PresenceBook
from shard.roster import Account, Roster

_log = structlog.get_logger()
_HOLD_BACK_S = 5.0
"""For so long reading pauses while too many messages wait. Not longer: an unread pong would count as a dead link."""
_IDENTIFY_S = 10.0


class Reception:
    """The links of one worker; told by the listener."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        roster: Roster,
        fleet: Fleet,
        presence: PresenceBook,
        calls: Calls,
        clock: Clock,
        meters: Meters,
        tasks: Tasks,
        limits: Limits,
        crowded: int,
        connected: Callable[[Account], None] = lambda _: None,
    ) -> None:
        self._pipeline = pipeline
        self._roster = roster
        self._fleet = fleet
        self._presence = presence
        self._connected = connected
        self._calls = calls
        self._clock = clock
        self._meters = meters
        self._tasks = tasks
        self._limits = limits
        self._crowded = crowded
        self.complaints = LimitedLog(LogLimit(per_min=6, mono=clock.mono))
        self._crowded_since: float | None = None

    def opened(self, link: Link) -> None:
        self._meters.links += 1
        if link.bot_id:
            self._welcome(link)

    def frame(self, link: Link, data: bytes) -> Awaitable[None] | None:
        meters = self._meters
        meters.frames += 1
        try:
            found = parse(data, bot_id=link.bot_id, limits=self._limits, end=link.end, on_repaired=self._repaired)
        except BadFrame as bad:
            self._refused(link, bad)
            return None
        if isinstance(found, ActionReply):
            link.answered(found)
            return None
        if not link.bot_id:
            link.bot_id = found.bot_id
            self._welcome(link)
        account = self._roster.get(link.bot_id)
        if account is None:
            return None
        if type(found) is Message:
            account.last_event_at = self._clock.wall_s()
            self._pipeline.message(account, found)
            if meters.pending > self._crowded:
                return self._hold_back()
            self._crowded_since = None
            return None
        self._not_a_message(link, account, found)
        return None

    def too_large(self, link: Link) -> None:
        """Count a frame that was never read, for it broke the limit of the link."""
        self._refused(link, BadFrame(Reason.TOO_LARGE, f"at most {self._limits.max_bytes} bytes are taken"))

    def closed(self, link: Link, code: int, reason: str) -> None:
        self._meters.links -= 1
        last = self._roster.leave(link)
        _log.info("link.closed", bot_id=link.bot_id, link=link.number, code=code, reason=reason, last=last)
        account = self._roster.get(link.bot_id)
        if last:
            self._tasks.start(self._quietly(self._presence.drop(link.bot_id)), "presence.drop")
        elif account is not None:
            # Another worker may have the newest link from now on.
            self._tasks.start(self._quietly(self._presence.put(account)), "presence.put")

    def _not_a_message(self, link: Link, account: Account, found: Any) -> None:
        now = self._clock.wall_s()
        if isinstance(found, Heartbeat):
            account.beat(found, now)
            link.interval_ms = found.interval_ms
            self._meters.events["heartbeat"] += 1
        elif isinstance(found, Notice):
            account.last_event_at = now
            self._meters.events["notice"] += 1
            self._pipeline.notice(account, found)
        elif isinstance(found, Request):
            account.last_event_at = now
            self._meters.events["request"] += 1
        elif isinstance(found, Lifecycle):
            self._meters.events["lifecycle"] += 1

    def _refused(self, link: Link, bad: BadFrame) -> None:
        reason = Reason(bad.reason)
        self._meters.arrived += 1
        self._meters.refused[reason] += 1
        self.complaints.warning("frame.refused", f"{link.bot_id} {reason}", link=link.number, detail=str(bad))
        if reason is Reason.NOT_UTF8:
            raise BadLink(BAD_DATA, "the frame is not UTF-8")

    def _repaired(self) -> None:
        self._meters.repaired += 1

    def _welcome(self, link: Link) -> None:
        account = self._roster.join(link, self._clock.wall_s())
        self._fleet.add(link.bot_id)
        self._connected(account)
        _log.info(
            "link.opened",
            bot_id=link.bot_id,
            link=link.number,
            role=link.role.value,
            end=link.end.value,
            peer=link.peer,
            links=len(account.links),
        )
        self._tasks.start(self._quietly(self._announce(account)), "presence.put")
        if link.role is not Role.EVENT:
            self._tasks.start(self._identify(link, account), "link.identify")

    async def _announce(self, account: Account) -> None:
        try:
            await self._fleet.announce([account])
        finally:
            # It may have left meanwhile; nobody would take its entry out again.
            if account.links:
                await self._presence.put(account)

    async def _identify(self, link: Link, account: Account) -> None:
        """Ask the end what it is and whose account it carries; one that does not answer stays what its header said."""
        for name in ("get_version_info", "get_login_info"):
            try:
                reply = await link.call(name, {}, _IDENTIFY_S)
            except ActionFailed:
                return
            if not reply.ok or not isinstance(reply.data, dict):
                continue
            if name == "get_version_info":
                link.end, link.version = identify(link.user_agent, reply.data)
                account.end, account.version = link.end, link.version
            else:
                account.nickname = str(reply.data.get("nickname") or "")[:200]
        await self._quietly(self._announce(account))

    async def _hold_back(self) -> None:
        if self._crowded_since is None:
            self._crowded_since = self._clock.mono()
        # Counted from when it began, not anew for each frame: the pauses of one outage must not add up.
        limit = self._crowded_since + _HOLD_BACK_S
        # An event here would cost every message; this runs only while Redis is slower than the links.
        while self._meters.pending > self._crowded and self._clock.mono() < limit:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if self._meters.pending <= self._crowded:
            self._crowded_since = None

    @staticmethod
    async def _quietly(work: Awaitable[Any]) -> None:
        try:
            await work
        except RedisError as error:
            # The next beat writes it again; the loop of beats logs that Redis is away.
            _log.debug("presence.not_written", error=str(error))

"""One account's report of a message or a notice, on its way through the pipeline.

What differs between the two is here: the space and the digest they are matched by, and the context their handler gets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pallas.claim import Claim
from pallas.context import Context, EventContext, NoticeContext
from pallas.identity import notice_digest
from pallas.keys import encode, notice_space, private_space
from pallas.levels import Level, People, level_of
from pallas.model import Message, Notice
from pallas.onebot.wire import sender_of
from shard.matching import Entry, Standing
from shard.notices import Sighting

if TYPE_CHECKING:
    from pallas.context import Actions
    from pallas.handler import Route
    from pallas.keys import Bucket
    from shard.roster import Account
    from shard.stops import Step, Stop
    from shard.turns import Turn

_CONTENTS_S = 60.0
NOTICE_CLOCKS_S = 10
"""Each end stamps a notice with its own clock: reports this far apart may be of one happening."""


class Report(ABC):
    """What the steps of the pipeline pass on; `arrived` is monotonic seconds."""

    __slots__ = ("account", "arrived", "claim", "ending", "over", "returns", "route", "standing", "turn", "way")

    def __init__(self, account: Account, arrived: float) -> None:
        self.account = account
        self.arrived = arrived
        self.standing = Standing.NEW
        self.route: Route
        self.way: Iterator[Step]
        """The steps that are left."""
        self.over: Callable[[Any, Stop], None]
        """Who is told where the way ends."""
        self.claim: Claim | None = None
        self.turn: Turn | None = None
        """Its place in the order of its group; None where there is no order to keep."""
        self.returns = 0
        """How often this worker gave it back because none of its links carried anything."""
        self.ending: Stop | None = None
        """How its handler ended here, where this worker's epoch had lapsed by then and the message was given up."""

    @property
    @abstractmethod
    def said_at(self) -> int:
        """When it was said or happened, by the reporting end: Unix seconds."""

    @abstractmethod
    def attempt(self) -> Claim:
        """A claim on this report's entry."""

    @abstractmethod
    def body(self) -> bytes:
        """The digest of what was said or what happened."""

    @abstractmethod
    def level(self, people: People) -> Level:
        """The level of the person the report is about."""

    @abstractmethod
    def context(self, actions: Actions) -> EventContext:
        """What the handler is given."""

    @abstractmethod
    def observers(self) -> Sequence[str]:
        """The accounts of this worker that reported it, in order; grows while more do."""

    @abstractmethod
    def fields(self) -> dict[str, str]:
        """Ids for the log."""


class MessageReport(Report):
    """A report of a message."""

    __slots__ = ("entry", "message")

    def __init__(self, account: Account, message: Message, arrived: float) -> None:
        super().__init__(account, arrived)
        self.message = message
        self.entry: Entry

    @property
    def said_at(self) -> int:
        return self.message.time_s

    def space(self) -> str:
        message = self.message
        if message.group_id:
            return encode(message.group_id)
        return private_space(message.bot_id, message.user_id)

    def attempt(self) -> Claim:
        message, group = self.message, self.entry.group
        # Without a message id only this attempt can say that it is the same report.
        own = f"{message.bot_id}:{message.message_id or token_hex(8)}"
        mark = "" if self.standing is Standing.LEARNED else own
        claim = Claim(group.bucket, group.space, message.seq, message.time_s, message.user_id, mark)
        if group.plain or self.arrived < group.contents_until:
            claim.body = self.entry.digest()
            claim.tolerance_s = group.terms.tolerance_s
        return claim

    def body(self) -> bytes:
        # Redis compares contents here though no account of ours asks for it: for a while it is told at once.
        self.entry.group.contents_until = self.arrived + _CONTENTS_S
        return self.entry.digest()

    def level(self, people: People) -> Level:
        sender = sender_of(self.message)
        return level_of(sender.user_id, sender.role if self.message.group_id else "", people)

    def context(self, actions: Actions) -> EventContext:
        return Context(self.message, self.route, actions)

    def observers(self) -> Sequence[str]:
        return self.entry.observers

    def fields(self) -> dict[str, str]:
        message = self.message
        return {"bot_id": message.bot_id, "group_id": message.group_id, "handler": self.route.handler.name}


class NoticeReport(Report):
    """A report that something happened."""

    __slots__ = ("bucket", "notice", "sighting", "time_s")

    def __init__(self, account: Account, notice: Notice, arrived: float, time_s: int) -> None:
        super().__init__(account, arrived)
        self.notice = notice
        self.time_s = time_s
        self.sighting: Sighting
        self.bucket: Bucket

    @property
    def said_at(self) -> int:
        return self.time_s

    def space(self) -> str:
        notice = self.notice
        if notice.group_id:
            return notice_space(notice.group_id)
        return private_space(notice.bot_id, notice.user_id or notice.bot_id)

    def attempt(self) -> Claim:
        notice = self.notice
        claim = Claim(
            self.bucket,
            self.space(),
            None,
            self.time_s,
            notice.user_id,
            f"{notice.bot_id}:{self.sighting.number}",
            NOTICE_CLOCKS_S,
        )
        claim.body = self.sighting.body
        return claim

    def body(self) -> bytes:
        return notice_digest(self.notice)

    def level(self, people: People) -> Level:
        return level_of(self.notice.user_id, "", people)

    def context(self, actions: Actions) -> EventContext:
        return NoticeContext(self.notice, self.route, actions)

    def observers(self) -> Sequence[str]:
        return tuple(self.sighting.observers)

    def fields(self) -> dict[str, str]:
        notice = self.notice
        return {"bot_id": notice.bot_id, "group_id": notice.group_id, "handler": self.route.handler.name}

"""What a handler is given: the event it answers and the few things it may do.

The contexts only hold the event and shape what is sent; every act goes through `Actions`, which the worker
implements (claim, guards, link) and `pallas.testing` imitates. A context must not be kept after its handler ended:
the worker refuses what comes later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pallas.errors import AppError
from pallas.handler import Route
from pallas.model import Message, Notice, Sender
from pallas.onebot.wire import sender_of
from pallas.segments import At, Content, Quote, Segment, Text, from_wire


@dataclass(slots=True, frozen=True)
class Sent:
    """What was sent: its id with the account that sent it (ids of two accounts may not be mixed)."""

    message_id: str
    bot_id: str


class Actions(Protocol):
    """What a context can have done; one object per run of a handler."""

    @property
    def log(self) -> Any:
        """A structlog logger bound to the event's ids."""

    async def deliver(self, content: tuple[Segment, ...], *, group_id: str, user_id: str) -> Sent:
        """Send as the answering account; exactly one of `group_id` and `user_id` is not empty."""

    async def call(self, action: str, params: Mapping[str, Any], *, as_bot: str | None) -> Any:
        """Have an account's end perform an action and return its data."""


class EventContext(ABC):
    """What the contexts of all events share."""

    __slots__ = ("_actions", "route")

    def __init__(self, route: Route, actions: Actions) -> None:
        self.route = route
        self._actions = actions

    def __repr__(self) -> str:
        return f"<{type(self).__name__} bot={self.bot_id} group={self.group_id or '-'} user={self.user_id or '-'}>"

    @property
    @abstractmethod
    def bot_id(self) -> str:
        """The account that answers: the one whose report won."""

    @property
    @abstractmethod
    def group_id(self) -> str:
        """The group, empty for a private chat."""

    @property
    @abstractmethod
    def user_id(self) -> str:
        """The person the event is about: who wrote, joined, left."""

    @property
    def log(self) -> Any:
        """A structlog logger that already carries the ids of this event; do not log message bodies."""
        return self._actions.log

    async def reply(self, content: Content, *, quote: bool = False, at_sender: bool = False) -> Sent:
        """Answer in the chat of the event.

        `quote` points at the person's message where it has an id, `at_sender` mentions the person in a group.
        Raises what `send` raises.
        """
        head: list[Segment] = []
        if quote and self._quotable:
            head.append(Quote(self._quotable))
        if at_sender and self.group_id:
            head += (At(self.user_id), Text(" "))
        return await self._deliver((*head, *flatten(content)), self.group_id, "" if self.group_id else self.user_id)

    async def send(self, content: Content, *, group_id: str | None = None, user_id: str | None = None) -> Sent:
        """Send to a group or to a person, by default to the chat of the event.

        Raises NotSent where surely nothing was sent, SendUnknown where nobody can tell (never repeat it by
        yourself), ActionFailed where the end refused, AppError for empty content or a receiver that is none.
        """
        if group_id is None and user_id is None:
            return await self.reply(content)
        if group_id and user_id:
            raise AppError("send takes group_id or user_id, not both")
        receiver = group_id or user_id
        if not receiver or not isinstance(receiver, str):
            raise AppError(f"send needs the receiver's id as non-empty text, not {receiver!r}")
        return await self._deliver(flatten(content), group_id or "", user_id or "")

    async def call(self, action: str, *, as_bot: str | None = None, **params: Any) -> Any:
        """Have the answering account (or `as_bot`) perform an action and return the data of its answer.

        Raises NotSent, SendUnknown or ActionFailed as `send` does.
        """
        return await self._actions.call(action, params, as_bot=as_bot)

    async def answer(self, result: Any) -> None:
        """Send what a handler returned; a `Sent` says that it has answered already."""
        if not isinstance(result, Sent):
            await self.reply(result)

    async def _deliver(self, content: tuple[Segment, ...], group_id: str, user_id: str) -> Sent:
        return await self._actions.deliver(content, group_id=group_id, user_id=user_id)

    @property
    def _quotable(self) -> str:
        return ""


class Context(EventContext):
    """The context of a message."""

    __slots__ = ("message",)

    def __init__(self, message: Message, route: Route, actions: Actions) -> None:
        super().__init__(route, actions)
        self.message = message

    @property
    def bot_id(self) -> str:
        return self.message.bot_id

    @property
    def group_id(self) -> str:
        return self.message.group_id

    @property
    def user_id(self) -> str:
        return self.message.user_id

    @property
    def text(self) -> str:
        """The text of the message, without mentions and images."""
        return self.message.text

    @property
    def command(self) -> str:
        """The declared name that matched; empty for the chat handler."""
        return self.route.command

    @property
    def args(self) -> str:
        """What follows the command's name, without white space around it; empty for the chat handler."""
        return self.route.args

    @property
    def argv(self) -> list[str]:
        """`args` split at white space."""
        return self.route.args.split()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The whole message: text, mentions, images, quotes."""
        return from_wire(self.message.raw_segments)

    @property
    def sender(self) -> Sender:
        """Who wrote, as the reporting end describes them; every field may be stale or empty."""
        return sender_of(self.message)

    @property
    def _quotable(self) -> str:
        return self.message.message_id


class NoticeContext(EventContext):
    """The context of a notice: a join, a recall, a poke."""

    __slots__ = ("notice",)

    def __init__(self, notice: Notice, route: Route, actions: Actions) -> None:
        super().__init__(route, actions)
        self.notice = notice

    @property
    def bot_id(self) -> str:
        return self.notice.bot_id

    @property
    def group_id(self) -> str:
        return self.notice.group_id

    @property
    def user_id(self) -> str:
        return self.notice.user_id


def flatten(content: Content) -> tuple[Segment, ...]:
    """Content as segments, a plain string as one text; AppError for what is no content or is empty."""
    parts: Iterable[object] = (content,) if isinstance(content, str | Segment) else content
    if isinstance(parts, bytes | Mapping) or not isinstance(parts, Iterable):
        raise AppError(_not_content(parts))
    found: list[Segment] = []
    for part in parts:
        if isinstance(part, Segment):
            found.append(part)
        elif not isinstance(part, str):
            raise AppError(_not_content(part))
        elif part:
            found.append(Text(part))
    if not found:
        raise AppError("nothing to send: the content is empty")
    return tuple(found)


def _not_content(value: object) -> str:
    return f"cannot send a value of type {type(value).__name__}: content is a str, a segment, or a list of these"

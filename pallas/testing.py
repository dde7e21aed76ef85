"""Testing a bot without a network: what a person says goes in, what the bot sends comes out.

A `TestBot` routes, checks levels and runs handlers by the same rules as a worker, in one process and without Redis.
It knows nothing of claims, other shards or limits: every account is in every group, and the first one's report wins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from pallas.app import App
from pallas.context import Actions, Context, EventContext, NoticeContext, Sent, flatten
from pallas.handler import Route
from pallas.levels import People, level_of
from pallas.model import Lane, Message, Notice, Reason
from pallas.segments import At, AtAll, Content, Segment, Text, to_wire

Answer = Callable[..., Any] | BaseException | object
"""What a scripted action gives: an exception is raised, a callable gets the parameters, the rest is returned."""


@dataclass(slots=True, frozen=True)
class Outgoing:
    """One thing the bot sent; exactly one of `group_id` and `user_id` is not empty."""

    bot_id: str
    group_id: str
    user_id: str
    segments: tuple[Segment, ...]
    message_id: str

    @property
    def text(self) -> str:
        """The texts of the message, joined."""
        return _text_of(self.segments)


@dataclass(slots=True, frozen=True)
class Call:
    """One action the bot asked for, sends included."""

    bot_id: str
    action: str
    params: Mapping[str, Any]


@dataclass(slots=True)
class _Recorder(Actions):
    """The acts of one run of a handler."""

    bot: TestBot
    bot_id: str
    sent: list[Outgoing] = field(default_factory=list)

    @property
    def log(self) -> Any:
        return structlog.get_logger("pallas.testing").bind(bot_id=self.bot_id)

    async def deliver(self, content: tuple[Segment, ...], *, group_id: str, user_id: str) -> Sent:
        action = "send_group_msg" if group_id else "send_private_msg"
        receiver = {"group_id": group_id} if group_id else {"user_id": user_id}
        scripted = self.bot.perform(Call(self.bot_id, action, {**receiver, "message": to_wire(content)}))
        message_id = str(scripted["message_id"]) if isinstance(scripted, Mapping) else self.bot.next_id()
        self.sent.append(Outgoing(self.bot_id, group_id, user_id, content, message_id))
        return Sent(message_id, self.bot_id)

    async def call(self, action: str, params: Mapping[str, Any], *, as_bot: str | None) -> Any:
        return self.bot.perform(Call(as_bot or self.bot_id, action, dict(params)))


class TestBot:
    """A bot with its accounts, to talk to.

        bot = TestBot(app)
        replies = await bot.says("sign in", group="1", user="2")
        assert [reply.text for reply in replies] == ["welcome"]

    `reason` is how the last event ended, `calls` every action asked for. Errors of handlers are raised, or with
    `raise_errors=False` kept in `errors`.
    """

    __test__ = False

    def __init__(
        self,
        app: App,
        *,
        accounts: Iterable[str] = ("10001",),
        superusers: Iterable[str] = (),
        bot_moderators: Iterable[str] = (),
        staff: Iterable[str] = (),
        timeout_s: float = 5.0,
        raise_errors: bool = True,
    ) -> None:
        self.app = app
        self.accounts = tuple(accounts)
        if not self.accounts:
            raise ValueError("a TestBot needs at least one account")
        self.calls: list[Call] = []
        self.errors: list[Exception] = []
        self.reason: Reason | None = None
        self._people = People(frozenset(superusers), frozenset(bot_moderators), frozenset(staff))
        self._timeout_s = timeout_s
        self._raise_errors = raise_errors
        self._answers: dict[str, Answer] = {}
        self._last_id = 1000

    def __repr__(self) -> str:
        return f"<TestBot {self.app!r} accounts={','.join(self.accounts)}>"

    def answers(self, action: str, answer: Answer) -> None:
        """Script an action: an exception is raised, a callable is given the parameters, anything else is returned.

        Sends are `send_group_msg` and `send_private_msg`; unscripted they succeed. Other actions must be scripted.
        """
        self._answers[action] = answer

    async def says(
        self,
        content: Content,
        *,
        group: str = "1",
        user: str = "2",
        role: str = "member",
        nickname: str = "",
        mentions: Iterable[str] = (),
        message_id: str | None = None,
    ) -> list[Outgoing]:
        """Have a person write a message and return what the bot sent for it; `group=""` for a private chat.

        The first account answers, whoever is mentioned: its report is the one that wins. A fanout is answered by all.
        """
        segments = (*(AtAll() if one == "all" else At(one) for one in mentions), *(flatten(content) if content else ()))
        mentioned = tuple(
            "all" if isinstance(one, AtAll) else one.user_id for one in segments if isinstance(one, At | AtAll)
        )
        sender = {"user_id": user, "nickname": nickname, **({"role": role} if group else {})}
        identity = message_id if message_id is not None else self.next_id()

        def report(bot_id: str) -> Message:
            return Message(
                bot_id=bot_id,
                group_id=group,
                user_id=user,
                message_id=identity,
                seq=None,
                time_s=int(time.time()),
                text=_text_of(segments),
                mentions=mentioned,
                raw_segments=to_wire(segments),
                sender=sender,
            )

        message = report(self.accounts[0])
        route = self.app.route(message)
        if route is None:
            self.reason = Reason.NO_HANDLER
            return []
        if level_of(user, role if group else "", self._people) < route.handler.level:
            self.reason = Reason.NOT_PERMITTED
            return []
        sent: list[Outgoing] = []
        for bot_id in self.accounts if route.lane is Lane.FANOUT else self.accounts[:1]:
            recorder = _Recorder(self, bot_id)
            await self._run(route, Context(report(bot_id), route, recorder))
            sent += recorder.sent
        return sent

    async def notice(
        self,
        notice_type: str,
        *,
        sub_type: str = "",
        group: str = "1",
        user: str = "2",
        operator: str = "",
        target: str = "",
        detail: str = "",
        raw: Mapping[str, Any] | None = None,
    ) -> list[Outgoing]:
        """Have something happen in a group and return what the bot sent for it."""
        notice = Notice(
            bot_id=self.accounts[0],
            notice_type=notice_type,
            sub_type=sub_type,
            group_id=group,
            user_id=user,
            operator_id=operator,
            target_id=target,
            time_s=int(time.time()),
            detail=detail,
            raw=raw if raw is not None else {},
        )
        route = self.app.route_notice(notice)
        if route is None:
            self.reason = Reason.NO_HANDLER
            return []
        recorder = _Recorder(self, notice.bot_id)
        await self._run(route, NoticeContext(notice, route, recorder))
        return recorder.sent

    def perform(self, call: Call) -> Any:
        """Record an action and give its scripted answer."""
        self.calls.append(call)
        if call.bot_id not in self.accounts:
            raise AssertionError(f"{call.action} as {call.bot_id}, which is none of the bot's accounts {self.accounts}")
        if call.action not in self._answers:
            if call.action in ("send_group_msg", "send_private_msg"):
                return None
            raise AssertionError(f'{call.action} is not scripted: say bot.answers("{call.action}", ...) before')
        answer = self._answers[call.action]
        if isinstance(answer, BaseException):
            raise answer
        return answer(**call.params) if callable(answer) else answer

    def next_id(self) -> str:
        """A message id that was not used before."""
        self._last_id += 1
        return str(self._last_id)

    async def _run(self, route: Route, ctx: EventContext) -> None:
        limit = asyncio.timeout(route.handler.timeout_s or self._timeout_s)
        try:
            async with limit:
                await route.handler.run(ctx)
        except Exception as exc:
            self.reason = Reason.HANDLER_TIMEOUT if limit.expired() else Reason.HANDLER_ERROR
            self.errors.append(exc)
            if self._raise_errors:
                raise
        else:
            self.reason = Reason.OK


def _text_of(segments: Iterable[Segment]) -> str:
    return "".join(one.text for one in segments if isinstance(one, Text))

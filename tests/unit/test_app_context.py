"""What a handler's context shows, and how it shapes what is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pallas.app import App
from pallas.context import Context, NoticeContext, Sent
from pallas.errors import AppError, SendUnknown
from pallas.model import Message, Notice, Sender
from pallas.segments import At, Image, Quote, Segment, Text, to_wire

app = App("my-bot")


@app.command("draw")
async def draw(ctx: Context) -> None: ...


@app.notice()
async def any_notice(ctx: NoticeContext) -> None: ...


class Spy:
    """Keeps what it is asked to do."""

    def __init__(self) -> None:
        self.delivered: list[tuple[tuple[Segment, ...], str, str]] = []
        self.called: list[tuple[str, Mapping[str, Any], str | None]] = []
        self.log = "the logger"

    async def deliver(self, content: tuple[Segment, ...], *, group_id: str, user_id: str) -> Sent:
        self.delivered.append((content, group_id, user_id))
        return Sent("77", "10001")

    async def call(self, action: str, params: Mapping[str, Any], *, as_bot: str | None) -> Any:
        self.called.append((action, params, as_bot))
        if action == "broken":
            raise SendUnknown("no answer", -1)
        return {"role": "admin"}


def context(spy: Spy, text: str = "/draw a  cat", *, group: str = "1", message_id: str = "3") -> Context:
    message = Message(
        bot_id="10001",
        group_id=group,
        user_id="2",
        message_id=message_id,
        seq=None,
        time_s=1,
        text=text,
        mentions=(),
        raw_segments=to_wire([text, Image("a.png")]),
        sender={"nickname": "nick", "role": "owner"},
    )
    route = app.route(message)
    assert route is not None
    return Context(message, route, spy)


def notice_context(spy: Spy, group: str = "1") -> NoticeContext:
    notice = Notice("10001", "group_increase", "approve", group, "2", "9", "", 1, "", {})
    route = app.route_notice(notice)
    assert route is not None
    return NoticeContext(notice, route, spy)


def test_a_message_is_shown_with_its_command_and_arguments() -> None:
    spy = Spy()
    ctx = context(spy)
    assert (ctx.text, ctx.command, ctx.args, ctx.argv) == ("/draw a  cat", "draw", "a  cat", ["a", "cat"])
    assert (ctx.bot_id, ctx.group_id, ctx.user_id) == ("10001", "1", "2")
    assert ctx.sender == Sender("2", "nick", "", "owner")
    assert ctx.segments == (Text("/draw a  cat"), Image("a.png"))
    assert ctx.log == "the logger"
    assert repr(ctx) == "<Context bot=10001 group=1 user=2>"


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, (Text("done"),)),
        ({"quote": True}, (Quote("3"), Text("done"))),
        ({"at_sender": True}, (At("2"), Text(" "), Text("done"))),
        ({"quote": True, "at_sender": True}, (Quote("3"), At("2"), Text(" "), Text("done"))),
    ],
)
async def test_a_reply_goes_to_the_group_with_what_was_asked_for(
    options: dict[str, bool], expected: tuple[Segment, ...]
) -> None:
    spy = Spy()
    sent = await context(spy).reply("done", **options)
    assert spy.delivered == [(expected, "1", "")]
    assert sent == Sent("77", "10001")


async def test_a_private_reply_goes_to_the_person_and_mentions_nobody() -> None:
    spy = Spy()
    await context(spy, group="").reply("done", at_sender=True)
    assert spy.delivered == [((Text("done"),), "", "2")]


async def test_a_message_without_an_id_is_not_quoted() -> None:
    spy = Spy()
    await context(spy, message_id="").reply("done", quote=True)
    assert spy.delivered == [((Text("done"),), "1", "")]


async def test_a_notice_is_answered_in_its_group() -> None:
    spy = Spy()
    ctx = notice_context(spy)
    assert ctx.notice.operator_id == "9"
    await ctx.reply("welcome", quote=True, at_sender=True)
    assert spy.delivered == [((At("2"), Text(" "), Text("welcome")), "1", "")]
    assert repr(ctx) == "<NoticeContext bot=10001 group=1 user=2>"


async def test_send_chooses_the_receiver() -> None:
    spy = Spy()
    ctx = context(spy)
    await ctx.send("here")
    await ctx.send("there", group_id="5")
    await ctx.send(["you", At("6")], user_id="6")
    assert spy.delivered == [
        ((Text("here"),), "1", ""),
        ((Text("there"),), "5", ""),
        ((Text("you"), At("6")), "", "6"),
    ]


@pytest.mark.parametrize("receiver", [{"group_id": "1", "user_id": "2"}, {"group_id": ""}, {"user_id": ""}])
async def test_send_refuses_a_receiver_that_is_none_or_two(receiver: dict[str, str]) -> None:
    spy = Spy()
    with pytest.raises(AppError):
        await context(spy).send("x", **receiver)
    assert spy.delivered == []


async def test_send_refuses_an_id_that_is_a_number() -> None:
    number: Any = 5
    with pytest.raises(AppError, match="id as non-empty text, not 5"):
        await context(Spy()).send("x", group_id=number)


@pytest.mark.parametrize("content", ["", [], [""], 5, True, b"x", {"type": "text"}, [5], None])
async def test_what_is_no_content_is_refused_before_anything_is_sent(content: Any) -> None:
    spy = Spy()
    with pytest.raises(AppError, match=r"cannot send|nothing to send"):
        await context(spy).reply(content)
    assert spy.delivered == []


async def test_a_call_passes_its_parameters_and_its_account() -> None:
    spy = Spy()
    ctx = context(spy)
    assert await ctx.call("get_group_member_info", as_bot="10002", group_id="1", user_id="2") == {"role": "admin"}
    assert spy.called == [("get_group_member_info", {"group_id": "1", "user_id": "2"}, "10002")]
    with pytest.raises(SendUnknown):
        await ctx.call("broken")


async def test_text_that_looks_like_a_code_stays_text() -> None:
    spy = Spy()
    await context(spy).reply("[CQ:at,qq=all]")
    assert spy.delivered == [((Text("[CQ:at,qq=all]"),), "1", "")]

"""Testing a bot without a network, as its author does."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from pallas.app import App
from pallas.context import Context, NoticeContext, Sent
from pallas.demo import app as demo
from pallas.errors import AppError, NotSent
from pallas.model import Reason
from pallas.segments import At, Image, Quote, Text
from pallas.testing import Outgoing, TestBot


def a_bot() -> App:
    app = App("my-bot")

    @app.command("签到", "sign in")
    async def sign_in(ctx: Context) -> None:
        await ctx.reply(["welcome ", At(ctx.user_id), Image("https://example.org/a.png")], quote=True)

    @app.command("kick", level="group_moderator")
    async def kick(ctx: Context) -> None:
        info = await ctx.call("get_group_member_info", group_id=ctx.group_id, user_id=ctx.args)
        await ctx.reply(f"{info['role']} kicked")

    @app.command("roll")
    def roll(ctx: Context) -> str:
        return (
            f"{ctx.sender.nickname} rolled 4 off the loop: {threading.current_thread() is not threading.main_thread()}"
        )

    @app.command("break")
    async def broken(ctx: Context) -> None:
        await ctx.reply("so far")
        raise ZeroDivisionError

    @app.command("hang", timeout_s=0.01)
    async def hang(ctx: Context) -> None:
        await asyncio.Event().wait()
        await ctx.reply("too late")

    @app.command("forward")
    def lazy(ctx: Context) -> Any:
        return ctx.send("psst", user_id=ctx.args)

    @app.fanout("roll call")
    async def present(ctx: Context) -> None:
        await ctx.reply(f"{ctx.bot_id} is here")

    @app.notice("group_increase")
    async def greet(ctx: NoticeContext) -> str:
        return f"hello {ctx.user_id}, invited by {ctx.notice.operator_id}"

    return app


async def test_what_a_bot_sends_is_returned_as_segments_and_as_text() -> None:
    (reply,) = await TestBot(a_bot()).says("签到", group="1", user="2", message_id="55")
    assert isinstance(reply, Outgoing)
    assert reply.segments == (Quote("55"), Text("welcome "), At("2"), Image("https://example.org/a.png"))
    assert (reply.text, reply.group_id, reply.user_id, reply.bot_id) == ("welcome ", "1", "", "10001")


async def test_a_private_message_is_answered_in_private() -> None:
    (reply,) = await TestBot(a_bot()).says("/sign in", group="", user="2")
    assert (reply.group_id, reply.user_id) == ("", "2")


async def test_a_message_that_nobody_wants_gets_nothing() -> None:
    bot = TestBot(a_bot())
    assert await bot.says("hello") == []
    assert bot.reason is Reason.NO_HANDLER
    assert await bot.notice("group_recall") == []
    assert bot.reason is Reason.NO_HANDLER


@pytest.mark.parametrize(
    "person, allowed",
    [
        ({"user": "2"}, False),
        ({"user": "2", "role": "admin"}, True),
        ({"user": "3"}, False),
        ({"user": "4"}, True),
        ({"user": "5"}, True),
        ({"user": "2", "role": "admin", "group": ""}, False),
    ],
)
async def test_levels_are_asked_as_a_worker_asks_them(person: dict[str, str], allowed: bool) -> None:
    bot = TestBot(a_bot(), staff=["3"], bot_moderators=["4"], superusers=["5"])
    bot.answers("get_group_member_info", {"role": "member"})
    replies = await bot.says("kick 9", **person)
    assert [reply.text for reply in replies] == (["member kicked"] if allowed else [])
    assert bot.reason is (Reason.OK if allowed else Reason.NOT_PERMITTED)


async def test_calls_are_answered_from_the_script_and_recorded() -> None:
    bot = TestBot(a_bot())
    bot.answers("get_group_member_info", lambda group_id, user_id: {"role": f"{group_id}/{user_id}"})
    (reply,) = await bot.says("kick 9", role="owner")
    assert reply.text == "1/9 kicked"
    assert [call.action for call in bot.calls] == ["get_group_member_info", "send_group_msg"]
    assert bot.calls[0].params == {"group_id": "1", "user_id": "9"}


async def test_a_call_without_a_script_fails_the_test() -> None:
    bot = TestBot(a_bot())
    with pytest.raises(AssertionError, match="get_group_member_info is not scripted"):
        await bot.says("kick 9", role="owner")


async def test_a_scripted_failure_reaches_the_handler() -> None:
    bot = TestBot(a_bot())
    bot.answers("send_group_msg", NotSent("no link", -3))
    with pytest.raises(NotSent):
        await bot.says("签到")
    assert bot.reason is Reason.HANDLER_ERROR


async def test_a_scripted_send_gives_its_message_id() -> None:
    bot = TestBot(a_bot())
    bot.answers("send_group_msg", {"message_id": 99})
    (reply,) = await bot.says("签到")
    assert reply.message_id == "99"


async def test_an_error_of_a_handler_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await TestBot(a_bot()).says("break")


@pytest.mark.parametrize("plain", [True, False])
async def test_a_handler_that_exits_ends_only_itself(plain: bool) -> None:
    app = App("my-bot")

    def leave(ctx: Context) -> None:
        sys.exit(int(ctx.args))

    async def leave_later(ctx: Context) -> None:
        leave(ctx)

    app.command("leave")(leave if plain else leave_later)
    with pytest.raises(AppError, match=r"handler 'leave' .* called exit\(\)"):
        await TestBot(app).says("leave 3")


async def test_errors_can_be_collected_with_what_was_sent_before() -> None:
    bot = TestBot(a_bot(), raise_errors=False)
    assert [reply.text for reply in await bot.says("break")] == ["so far"]
    assert [type(error) for error in bot.errors] == [ZeroDivisionError]
    assert bot.reason is Reason.HANDLER_ERROR


async def test_a_handler_that_hangs_ends_at_its_time_limit() -> None:
    bot = TestBot(a_bot())
    with pytest.raises(TimeoutError):
        await bot.says("hang")
    assert bot.reason is Reason.HANDLER_TIMEOUT


async def test_a_plain_function_runs_in_a_thread_and_answers_by_returning() -> None:
    (reply,) = await TestBot(a_bot()).says("roll", nickname="Ann")
    assert reply.text == "Ann rolled 4 off the loop: True"


async def test_what_a_plain_function_leaves_to_await_is_awaited_once() -> None:
    (reply,) = await TestBot(a_bot()).says("forward 7")
    assert (reply.text, reply.user_id) == ("psst", "7")


@pytest.mark.parametrize("mentions", [[], ["10001"], ["10002"], ["all"], ["10002", "10001"]])
async def test_the_account_whose_report_won_answers_whoever_is_mentioned(mentions: list[str]) -> None:
    bot = TestBot(a_bot(), accounts=["10001", "10002"])
    assert [reply.bot_id for reply in await bot.says("签到", mentions=mentions)] == ["10001"]
    assert [reply.bot_id for reply in await bot.says([*map(At, mentions), " 签到"])] == ["10001"]


async def test_a_handler_sees_who_is_mentioned() -> None:
    app = App("my-bot")

    @app.message()
    async def chat(ctx: Context) -> None:
        await ctx.reply(" ".join(ctx.message.mentions))

    (reply,) = await TestBot(app, accounts=["10001", "10002"]).says("x", mentions=["10002", "all"])
    assert reply.text == "10002 all"


async def test_every_account_answers_a_fanout() -> None:
    bot = TestBot(a_bot(), accounts=["10001", "10002", "10003"])
    replies = await bot.says("/roll call")
    assert [reply.text for reply in replies] == ["10001 is here", "10002 is here", "10003 is here"]


async def test_a_notice_is_answered_in_its_group() -> None:
    bot = TestBot(a_bot())
    (reply,) = await bot.notice("group_increase", group="8", user="9", operator="5")
    assert (reply.text, reply.group_id) == ("hello 9, invited by 5", "8")


async def test_a_call_as_an_account_that_is_not_the_bots_fails_the_test() -> None:
    app = App("my-bot")

    @app.message()
    async def chat(ctx: Context) -> None:
        await ctx.call("get_login_info", as_bot="4")

    with pytest.raises(AssertionError, match="none of the bot's accounts"):
        await TestBot(app).says("x")


async def test_a_sent_that_is_returned_is_not_sent_again() -> None:
    app = App("my-bot")

    @app.message()
    async def chat(ctx: Context) -> Sent:
        return await ctx.reply("once")

    assert [reply.text for reply in await TestBot(app).says("x")] == ["once"]


async def test_returning_what_cannot_be_sent_is_an_error_of_the_handler() -> None:
    app = App("my-bot")

    @app.message()
    async def chat(ctx: Context) -> bool:
        return bool(ctx.text)

    with pytest.raises(AppError, match="cannot send a value of type bool"):
        await TestBot(app).says("x")


def test_a_bot_without_accounts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one account"):
        TestBot(a_bot(), accounts=[])


def test_a_test_bot_says_what_it_is() -> None:
    assert repr(TestBot(demo, accounts=["1", "2"])) == "<TestBot <App 'pallas-demo' with 1 handlers> accounts=1,2>"


@pytest.mark.parametrize(
    "text, group, expected",
    [
        ("ping a1", "1", ["pong a1"]),
        ("ping  a1 b", "1", ["pong a1 b"]),
        ("ping", "1", []),
        ("ping a1", "", []),
        ("/ping a1", "1", []),
        ("pong a1", "1", []),
        ("hello", "1", []),
    ],
)
async def test_the_demo_bot_answers_ping_in_groups_and_nothing_else(text: str, group: str, expected: list[str]) -> None:
    assert [reply.text for reply in await TestBot(demo).says(text, group=group)] == expected

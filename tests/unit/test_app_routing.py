"""Which handler a message or notice goes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.app import App
from pallas.model import Lane, Message, Notice


async def nothing(ctx: Any) -> None: ...


def said(text: str, *, group: str = "1") -> Message:
    return Message(
        bot_id="10001",
        group_id=group,
        user_id="2",
        message_id="3",
        seq=None,
        time_s=1,
        text=text,
        mentions=(),
        raw_segments=[],
        sender={},
    )


def happened(kind: str, sub_type: str = "") -> Notice:
    return Notice(
        bot_id="10001",
        notice_type=kind,
        sub_type=sub_type,
        group_id="1",
        user_id="2",
        operator_id="",
        target_id="",
        time_s=1,
        detail="",
        raw={},
    )


def routed(app: App, text: str, *, group: str = "1") -> tuple[str, str] | None:
    route = app.route(said(text, group=group))
    return None if route is None else (route.command, route.args)


def bot_with(*names: str, **options: Any) -> App:
    app = App("my-bot")
    for name in names:
        app.command(name, **options)(nothing)
    return app


@pytest.mark.parametrize(
    "text, expected",
    [
        ("ping", ("ping", "")),
        ("ping x", ("ping", "x")),
        ("  ping \t x  y \n", ("ping", "x  y")),
        ("PiNg X", ("ping", "X")),
        ("/ping x", ("ping", "x")),
        ("/ ping x", ("ping", "x")),
        ("ping\u3000x", ("ping", "x")),
        ("//ping x", None),
        ("pingx", None),
        ("ping,x", None),
        ("x ping", None),
        ("!ping", None),
        ("pin", None),
        ("/", None),
        ("", None),
        (" ", None),
        ("签到", ("签到", "")),
        ("签到了", None),
        ("queue list a", ("queue list", "a")),
        ("/Queue   LIST a", ("queue list", "a")),
        ("queue lists", ("queue", "lists")),
        ("queue", ("queue", "")),
        ("straße x", ("STRASSE", "x")),
    ],
)
def test_a_command_is_followed_by_white_space_or_the_end(text: str, expected: tuple[str, str] | None) -> None:
    assert routed(bot_with("ping", "签到", "queue", "queue list", "STRASSE"), text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("喝酒", ("喝酒", "")),
        ("喝酒三杯", ("喝酒", "三杯")),
        ("/ 喝酒 三杯 ", ("喝酒", "三杯")),
        ("喝酒大赛", ("喝酒大赛", "")),
        ("喝酒大赛开始", ("喝酒大赛", "开始")),
        ("喝", None),
        ("MAA截图", ("maa", "截图")),
    ],
)
def test_a_glued_command_needs_no_white_space_and_the_longest_wins(text: str, expected: tuple[str, str] | None) -> None:
    assert routed(bot_with("喝酒", "喝酒大赛", "maa", glued=True), text) == expected


def test_the_longest_name_wins_between_glued_and_separate_commands() -> None:
    app = bot_with("draw a cat", "画")
    app.command("draw", "画画", glued=True)(nothing)
    assert routed(app, "draw a cat now") == ("draw a cat", "now")
    assert routed(app, "draw a car") == ("draw", "a car")
    assert routed(app, "画 画") == ("画", "画")
    assert routed(app, "画画 猫") == ("画画", "猫")


def test_only_its_own_marks_may_stand_before_a_command() -> None:
    app = bot_with("ping", marks=("!", "！"))
    app.command("pong")(nothing)
    app.command("bare", marks=())(nothing)
    assert routed(app, "！ping 1") == ("ping", "1")
    assert routed(app, "! ping 1") == ("ping", "1")
    assert routed(app, "/ping 1") is None
    assert routed(app, "!pong") is None
    assert routed(app, "/bare") is None
    assert routed(app, "bare") == ("bare", "")


def test_the_chat_handler_gets_what_no_command_wants() -> None:
    app = bot_with("ping")
    app.message()(nothing)
    route = app.route(said("pings"))
    assert route is not None
    assert (route.lane, route.command, route.args) == (Lane.CHAT, "", "")
    assert routed(app, "") == ("", "")
    assert routed(app, "ping") == ("ping", "")


def test_a_handler_is_only_asked_in_its_kind_of_chat() -> None:
    app = bot_with("ping", where="group")
    app.message(where="private")(nothing)
    assert routed(app, "ping") == ("ping", "")
    assert routed(app, "hello") is None
    assert routed(app, "ping", group="") == ("", "")


def test_a_fanout_wants_exactly_its_text_and_a_group() -> None:
    app = bot_with("牛牛", glued=True)
    app.fanout("牛牛出列", "roll call")(nothing)
    route = app.route(said(" /牛牛出列 "))
    assert route is not None
    assert route.lane is Lane.FANOUT
    assert routed(app, "Roll  Call") == ("roll call", "")
    assert routed(app, "牛牛出列 三") == ("牛牛", "出列 三")
    assert routed(app, "roll call now") is None
    assert routed(app, "牛牛出列", group="") == ("牛牛", "出列")


def test_the_more_exact_notice_handler_wins() -> None:
    app = App("my-bot")
    for names in (("notify.poke",), ("notify", "group_increase"), ()):
        app.notice(*names)(nothing)

    def handler_of(kind: str, sub_type: str = "") -> str | None:
        route = app.route_notice(happened(kind, sub_type))
        return None if route is None else route.command

    assert handler_of("notify", "poke") == "notify.poke"
    assert handler_of("notify", "honor") == "notify"
    assert handler_of("group_increase", "invite") == "group_increase"
    assert handler_of("group_recall") == ""
    assert App("empty").route_notice(happened("notify")) is None


# What a pool's deployments answer for a declared capability and a text: our glued commands agree with them.
COVERED = [
    ("牛牛喝酒", " 牛牛喝酒 ", True),
    ("牛牛喝酒", "牛牛喝酒一杯", True),
    ("牛牛喝酒", "//牛牛喝酒", False),
    ("牛牛喝酒", "/ 牛牛喝酒", True),
    ("牛牛喝酒", "牛牛", False),
    ("STRASSE", "STRASSE x", True),
    ("Help", "HELP me", True),
    ("牛牛 喝酒", "牛牛喝酒", False),
    ("ﬁ", "ﬁx", True),
    ("ﬁ", "fi", False),
    ("#pallas", "#Pallas status", True),
    ("maa", "MAA截图", True),
]


@pytest.mark.parametrize("capability, text, covered", COVERED)
def test_a_glued_command_covers_what_a_pool_says_it_covers(capability: str, text: str, covered: bool) -> None:
    assert (routed(bot_with(capability, glued=True), text) is not None) is covered


def model(names: list[str], text: str) -> str | None:
    """The rule in words: the longest name whose words open the text's words."""
    words = text.casefold().split()
    if words and words[0].startswith("/"):
        bare = words[0][1:]
        words = ([bare] if bare else []) + words[1:]
    fitting = [name for name in names if words[: len(name.split())] == name.split()]
    return max(fitting, key=len, default=None)


WORDS = st.sampled_from(["a", "b", "ab", "a b", "b a", "a b a", "ba"])


@given(st.sets(WORDS, min_size=1), st.text(alphabet="ab /A\t", max_size=12))
def test_routing_agrees_with_its_rule(names: set[str], text: str) -> None:
    found = routed(bot_with(*names), text)
    assert (None if found is None else found[0]) == model(sorted(names), text)


@given(st.text(max_size=30))
def test_no_text_breaks_routing(text: str) -> None:
    app = bot_with("ß", "İ", "/", marks=("!",))
    app.command("ﬁ", "ǰ", glued=True)(nothing)
    app.route(said(text))


def test_a_megabyte_without_white_space_is_routed() -> None:
    assert routed(bot_with("ß" * 64), "ß" * 1_000_000) is None
    assert routed(bot_with("ß" * 64), "s" * 128) == ("ß" * 64, "")

"""Declaring a bot: what is accepted, and which contradictions are refused where they are written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from pallas.app import App
from pallas.errors import AppError
from pallas.handler import Where
from pallas.levels import Level
from pallas.model import Lane


async def first(ctx: Any) -> None:
    """The first handler."""


async def second(ctx: Any) -> None: ...


def plain(ctx: Any) -> str:
    return str(ctx)


async def test_a_declared_handler_carries_all_that_was_said_about_it() -> None:
    app = App("my-bot")

    returned = app.command("踢", "kick", level="group_moderator", needs="group_admin", where="group", timeout_s=3)(
        first
    )

    (handler,) = app.handlers
    assert returned is first
    assert (handler.name, handler.names, handler.lane) == ("踢", ("踢", "kick"), Lane.COMMAND)
    assert (handler.level, handler.needs, handler.where) == (Level.GROUP_MODERATOR, "group_admin", Where.GROUP)
    assert (handler.timeout_s, handler.is_async, handler.doc) == (3.0, True, "The first handler.")
    assert handler.source.startswith(f"{__file__}:")


def test_a_plain_function_is_known_as_one() -> None:
    app = App("my-bot")
    app.message()(plain)
    assert not app.handlers[0].is_async


def test_partials_methods_and_callable_objects_can_be_handlers() -> None:
    class Plugin:
        async def method(self, ctx: Any) -> None: ...

        async def __call__(self, ctx: Any) -> None: ...

    async def with_setting(setting: str, ctx: Any) -> None: ...

    app = App("my-bot")
    app.command("a")(Plugin().method)
    app.command("b")(functools.partial(with_setting, "x"))
    app.command("c")(Plugin())
    assert [handler.is_async for handler in app.handlers] == [True, True, True]


def test_one_function_may_answer_several_declarations() -> None:
    app = App("my-bot")
    app.command("a")(app.command("b")(first))
    assert [handler.name for handler in app.handlers] == ["b", "a"]


CONTRADICTIONS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("two commands", lambda app: app.command("签到"), lambda app: app.command("签到")),
    ("an alias", lambda app: app.command("sign in"), lambda app: app.command("check", "Sign  IN")),
    ("a glued and a separate one", lambda app: app.command("喝酒", glued=True), lambda app: app.command("喝酒")),
    ("a mark that makes them equal", lambda app: app.command("bind"), lambda app: app.command("/bind", marks=())),
    ("a command and a fanout", lambda app: app.command("牛牛出列"), lambda app: app.fanout("牛牛出列")),
    ("two chat handlers", lambda app: app.message(), lambda app: app.message(where="group")),
    ("two notices", lambda app: app.notice("group_increase"), lambda app: app.notice("x", "group_increase")),
    ("two for any notice", lambda app: app.notice(), lambda app: app.notice()),
]


@pytest.mark.parametrize("one, other", [row[1:] for row in CONTRADICTIONS], ids=[row[0] for row in CONTRADICTIONS])
def test_two_handlers_for_one_event_are_refused_with_both_places(
    one: Callable[[Any], Any], other: Callable[[Any], Any]
) -> None:
    app = App("my-bot")
    one(app)(first)

    with pytest.raises(AppError) as caught:
        other(app)(second)

    for func in (first, second):
        assert f"{__file__}:{func.__code__.co_firstlineno}" in str(caught.value)
    assert len(app.handlers) == 1


def test_a_refused_declaration_leaves_nothing_behind() -> None:
    app = App("my-bot")
    app.command("b")(first)
    with pytest.raises(AppError):
        app.command("a", "b")(second)
    app.command("a")(second)


def test_a_group_and_a_private_handler_of_one_name_do_not_contradict() -> None:
    app = App("my-bot")
    app.command("help", where="group")(first)
    app.command("help", where="private")(second)
    app.message(where="group")(first)
    app.message(where="private")(second)


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda app: app.command(first), 'write @app.command("name") with brackets'),
    (lambda app: app.fanout(first), 'write @app.fanout("name") with brackets'),
    (lambda app: app.notice(first), 'write @app.notice("name") with brackets'),
    (lambda app: app.command()(first), "command needs a name"),
    (lambda app: app.command("")(first), "1 to 64 printable characters"),
    (lambda app: app.command(" \t")(first), "1 to 64 printable characters"),
    (lambda app: app.command("x" * 65)(first), "1 to 64 printable characters"),
    (lambda app: app.command("a\x00b")(first), "1 to 64 printable characters"),
    (lambda app: app.command(7)(first), "names in quotes"),
    (lambda app: app.command("a", "A")(first), "given twice"),
    (lambda app: app.command("/bind")(first), "begins with its mark"),
    (lambda app: app.command("bind", marks=("//",))(first), "must be one visible character"),
    (lambda app: app.command("bind", marks=("x",))(first), "must be one visible character"),
    (lambda app: app.command("a", level="god")(first), "level 'god' does not exist; known levels: everyone, staff"),
    (lambda app: app.command("a", where="channel")(first), "where='channel' does not exist"),
    (lambda app: app.command("a", needs="owner")(first), "needs='owner' does not exist"),
    (lambda app: app.command("a", timeout_s=0)(first), "must be above 0"),
    (lambda app: app.command("a", timeout_s=float("inf"))(first), "must be above 0 and finite"),
    (lambda app: app.command("a", timeout_s="3")(first), "a number of seconds"),
    (lambda app: app.command("a", effect="start")(first), "not served by this version"),
    (lambda app: app.request("friend"), "@app.request('friend') is not served by this version"),
    (lambda app: app.task("draw", lane="complex"), "@app.task('draw', lane='complex') is not served by this version"),
]


@pytest.mark.parametrize("declare, expected", WRONG)
def test_a_wrong_declaration_says_what_to_write(declare: Callable[[Any], Any], expected: str) -> None:
    app = App("my-bot")
    with pytest.raises(AppError) as caught:
        declare(app)
    assert expected in str(caught.value)
    assert app.handlers == ()


def wrong_functions() -> list[Any]:
    def no_argument() -> None: ...

    def two_arguments(ctx: Any, more: Any) -> None: ...

    def keyword_only(*, ctx: Any) -> None: ...

    def generator(ctx: Any) -> Any:
        yield ctx

    async def async_generator(ctx: Any) -> Any:
        yield ctx

    class Class:
        def method(self, ctx: Any) -> None: ...

    return [no_argument, two_arguments, keyword_only, generator, async_generator, Class, Class.method, "text", None]


@pytest.mark.parametrize("func", wrong_functions(), ids=lambda func: getattr(func, "__qualname__", repr(func)))
def test_a_function_that_cannot_take_the_context_is_refused(func: Any) -> None:
    app = App("my-bot")
    with pytest.raises(AppError, match="handler"):
        app.message()(func)
    assert app.handlers == ()


def test_a_wrong_signature_is_reported_with_its_place() -> None:
    def greet() -> None: ...

    declare: Any = App("my-bot").message()
    with pytest.raises(AppError, match=rf"greet \({__file__}:{greet.__code__.co_firstlineno}\).*one argument"):
        declare(greet)


@pytest.mark.parametrize("name", ["", " ", "x" * 65, "a\nb\x1b"])
def test_a_bot_needs_a_readable_name(name: str) -> None:
    with pytest.raises(AppError):
        App(name)


def test_public_objects_say_what_they_are() -> None:
    app = App("my-bot")
    app.command("签到")(first)
    assert repr(app) == "<App 'my-bot' with 1 handlers>"
    assert repr(app.handlers[0]).startswith("<Handler command '签到' ")

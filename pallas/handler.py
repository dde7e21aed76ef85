"""One handler of a bot: the author's function and what was declared about it.

Checks a declaration when it is made, so that a mistake is shown where it was written and not at the first message.
Decides nothing about messages: which handler a message gets is `pallas.routing`'s business, whether and for how
long it runs is the worker's.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pallas.errors import AppError
from pallas.levels import Level
from pallas.model import Lane

if TYPE_CHECKING:
    from pallas.context import EventContext

HandlerFunc = Callable[[Any], Any]
"""The author's function: takes the context; may return content, which is sent as the reply."""

MAX_NAME_CHARS = 64


class Where(StrEnum):
    """In which chats a handler wants to be asked."""

    ANYWHERE = "anywhere"
    GROUP = "group"
    PRIVATE = "private"


@dataclass(slots=True, frozen=True, kw_only=True)
class Handler:
    """A declared handler; `names` are the texts or notice types it listens to, the first one names it."""

    name: str
    func: HandlerFunc
    lane: Lane
    names: tuple[str, ...] = ()
    level: Level = Level.EVERYONE
    where: Where = Where.ANYWHERE
    needs: str | None = None
    """What the answering account must be in the group: `group_admin`, or nothing."""
    marks: tuple[str, ...] = ()
    glued: bool = False
    timeout_s: float | None = None
    """Seconds one run may take; `None` for the deployment's setting."""
    is_async: bool = True
    doc: str = ""
    source: str = ""
    """`file:line` of the function."""

    def __repr__(self) -> str:
        return f"<Handler {self.lane} {self.name!r} {self.source}>"

    async def run(self, ctx: EventContext, executor: Executor | None = None) -> None:
        """Run the function once; what it returns, unless None, is sent as its reply.

        A plain `def` runs in a thread of `executor`. Cancelling this coroutine does not stop that thread, but
        what it returns afterwards is thrown away, so nothing is sent for a run that was given up.
        """
        try:
            if self.is_async:
                result = await self.func(ctx)
            else:
                call = functools.partial(contextvars.copy_context().run, self.func, ctx)
                result = await asyncio.get_running_loop().run_in_executor(executor, call)
                if inspect.isawaitable(result):
                    result = await result
        except SystemExit:
            # Let through, it would end the loop that all handlers share.
            raise AppError(
                f"handler {self.name!r} ({self.source}) called exit(); a handler ends by returning"
            ) from None
        if result is not None:
            await ctx.answer(result)


@dataclass(slots=True, frozen=True)
class Route:
    """Which handler an event goes to, by which declared name, and what the person wrote after the name."""

    handler: Handler
    lane: Lane
    command: str
    args: str


def describe(func: HandlerFunc) -> tuple[bool, str, str]:
    """`(is_async, doc, file:line)` of a function that can be a handler; anything else is an AppError."""
    source = _source_of(func)
    label = f"{_label(func)} ({source})"
    if not callable(func) or inspect.isclass(func):
        raise AppError(f"a handler must be a function, not {_label(func)}; put the decorator above a def")
    target = _innermost(func)
    if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target):
        raise AppError(f"handler {label} uses yield; a handler sends with ctx.reply(...) or returns its answer")
    try:
        inspect.signature(func).bind(None)
    except TypeError as exc:
        raise AppError(
            f"handler {label} is called with one argument, the context, and cannot take that: {exc}; "
            "write it as `async def name(ctx)`"
        ) from None
    except ValueError:
        pass  # a callable written in C shows no signature: nothing to check
    return inspect.iscoroutinefunction(target), inspect.cleandoc(getattr(func, "__doc__", None) or ""), source


def level_named(level: Level | str, source: str) -> Level:
    """The level a declaration names; an unknown word is an AppError that lists the known ones."""
    try:
        return Level(level)
    except ValueError:
        known = ", ".join(item.value for item in Level)
        raise AppError(f"{source}: level {level!r} does not exist; known levels: {known}") from None


def where_named(where: Where | str, source: str) -> Where:
    """The kind of chat a declaration names; an unknown word is an AppError that lists the known ones."""
    try:
        return Where(where)
    except ValueError:
        raise AppError(f"{source}: where={where!r} does not exist; known: {', '.join(Where)}") from None


def check_needs(needs: str | None, source: str) -> str | None:
    """What a declaration asks of the answering account; only `group_admin` exists."""
    if needs not in (None, "group_admin"):
        raise AppError(f"{source}: needs={needs!r} does not exist; known: 'group_admin'")
    return needs


def check_effect(effect: str, source: str) -> None:
    """Refuse every way of repeating a handler but `once`, the only one that workers serve."""
    if effect != "once":
        raise AppError(
            f"{source}: effect={effect!r} is not served by this version of Pallas Cluster; leave it out: "
            "a handler may then start again until its first send or call, and never afterwards"
        )


def check_timeout(timeout_s: float | None, source: str) -> float | None:
    """A time limit in seconds, above 0 and finite, or None."""
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise AppError(f"{source}: timeout_s is a number of seconds, not {timeout_s!r}")
    if not 0 < timeout_s < math.inf:
        raise AppError(f"{source}: timeout_s={timeout_s!r} must be above 0 and finite")
    return float(timeout_s)


def check_names(names: tuple[str, ...], source: str, kind: str) -> tuple[str, ...]:
    """Declared names with their white space collapsed; empty, over-long and unprintable ones are refused."""
    checked: list[str] = []
    for name in names:
        if not isinstance(name, str):
            raise AppError(f'{kind} takes names in quotes, not {_label(name)}; write @app.{kind}("name")')
        words = " ".join(name.split())
        if not words or len(words) > MAX_NAME_CHARS or not words.isprintable():
            raise AppError(
                f"{source}: {kind} name {name[:MAX_NAME_CHARS]!r} must have 1 to {MAX_NAME_CHARS} printable characters"
            )
        checked.append(words)
    return tuple(checked)


def check_marks(marks: tuple[str, ...], names: tuple[str, ...], source: str) -> tuple[str, ...]:
    """The marks that may stand before a name: single visible characters, and no part of the name itself."""
    for mark in marks:
        if not isinstance(mark, str) or len(mark) != 1 or mark.isspace() or mark.isalnum() or not mark.isprintable():
            raise AppError(f"{source}: mark {mark!r} must be one visible character that is no letter and no digit")
        for name in names:
            if name.startswith(mark):
                raise AppError(
                    f"{source}: {name!r} begins with its mark {mark!r}; write {name[1:]!r}, the mark is taken anyway"
                )
    return tuple(marks)


def _innermost(func: Any) -> Any:
    """The function under partials and wrappers, or the `__call__` of a callable object."""
    while isinstance(func, functools.partial):
        func = func.func
    func = inspect.unwrap(func)
    return func if inspect.isroutine(func) else getattr(func, "__call__", func)  # noqa: B004


def _label(func: Any) -> str:
    return str(getattr(_innermost(func), "__qualname__", None) or repr(func))


def _source_of(func: Any) -> str:
    code = getattr(_innermost(func), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "source unknown"

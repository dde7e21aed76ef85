"""A bot: which handlers it declares, and which of them one event goes to.

An `App` only declares; it knows no network and no Redis. Exactly one handler gets an event, so two that could both
get it are refused when they are declared. `route` is pure and runs for every message of every account: what costs
time here costs it a thousand times a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from pallas import handler as declared
from pallas.errors import AppError
from pallas.handler import Handler, Route, Where
from pallas.levels import Level
from pallas.model import Lane, Message, Notice
from pallas.routing import Index

if TYPE_CHECKING:
    from pallas.context import Context, NoticeContext

M = TypeVar("M", bound="Callable[[Context], Any]")
N = TypeVar("N", bound="Callable[[NoticeContext], Any]")


class MessageDecorator(Protocol):
    """Declares a function that answers messages and gives it back as it was."""

    def __call__(self, func: M, /) -> M: ...


class NoticeDecorator(Protocol):
    """Declares a function that answers notices and gives it back as it was."""

    def __call__(self, func: N, /) -> N: ...


class App:
    """A bot's handlers, declared with decorators.

    app = App("my-bot")

    @app.command("sign in", level="everyone")
    async def sign_in(ctx: Context) -> None:
        await ctx.reply("welcome")
    """

    __slots__ = ("_group", "_handlers", "_notices", "_private", "name")

    def __init__(self, name: str) -> None:
        (self.name,) = declared.check_names((name,), "App(...)", "app")
        self._handlers: list[Handler] = []
        self._group = Index()
        self._private = Index()
        self._notices: dict[str, Route] = {}

    def __repr__(self) -> str:
        return f"<App {self.name!r} with {len(self._handlers)} handlers>"

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """Everything declared, in order."""
        return tuple(self._handlers)

    def command(
        self,
        *names: str,
        level: Level | str = Level.EVERYONE,
        needs: str | None = None,
        where: Where | str = Where.ANYWHERE,
        marks: tuple[str, ...] = ("/",),
        glued: bool = False,
        timeout_s: float | None = None,
        effect: str = "once",
    ) -> MessageDecorator:
        """Declare the handler of a command: a name, further names for it, and who may use it.

        The name must be followed by white space or the end of the text, unless it is `glued`; one of `marks` may
        stand before it. `level` is what the person must be, `needs` what the answering account must be in the
        group. Raises AppError for a contradiction.
        """

        def declare(func: M) -> M:
            is_async, doc, source = declared.describe(func)
            checked = declared.check_names(names, source, "command")
            declared.check_effect(effect, source)
            self._add(
                Handler(
                    name=_first(checked, source, "command"),
                    func=func,
                    lane=Lane.COMMAND,
                    names=checked,
                    level=declared.level_named(level, source),
                    where=declared.where_named(where, source),
                    needs=declared.check_needs(needs, source),
                    marks=declared.check_marks(marks, checked, source),
                    glued=glued,
                    timeout_s=declared.check_timeout(timeout_s, source),
                    is_async=is_async,
                    doc=doc,
                    source=source,
                )
            )
            return func

        _refuse_bare(names, "command")
        return declare

    def message(self, *, where: Where | str = Where.ANYWHERE, timeout_s: float | None = None) -> MessageDecorator:
        """Declare the chat handler: it gets every message that is no command. At most one for each kind of chat."""

        def declare(func: M) -> M:
            is_async, doc, source = declared.describe(func)
            self._add(
                Handler(
                    name="message",
                    func=func,
                    lane=Lane.CHAT,
                    where=declared.where_named(where, source),
                    timeout_s=declared.check_timeout(timeout_s, source),
                    is_async=is_async,
                    doc=doc,
                    source=source,
                )
            )
            return func

        return declare

    def fanout(
        self,
        *names: str,
        level: Level | str = Level.EVERYONE,
        marks: tuple[str, ...] = ("/",),
        timeout_s: float | None = None,
    ) -> MessageDecorator:
        """Declare a roll-call: every account in the group runs the handler when the text is exactly a name."""

        def declare(func: M) -> M:
            is_async, doc, source = declared.describe(func)
            checked = declared.check_names(names, source, "fanout")
            self._add(
                Handler(
                    name=_first(checked, source, "fanout"),
                    func=func,
                    lane=Lane.FANOUT,
                    names=checked,
                    level=declared.level_named(level, source),
                    where=Where.GROUP,
                    marks=declared.check_marks(marks, checked, source),
                    timeout_s=declared.check_timeout(timeout_s, source),
                    is_async=is_async,
                    doc=doc,
                    source=source,
                )
            )
            return func

        _refuse_bare(names, "fanout")
        return declare

    def notice(self, *types: str, timeout_s: float | None = None) -> NoticeDecorator:
        """Declare the handler of notices: `"group_increase"`, or `"notify.poke"` for one sub-type.

        The more exact name wins; without a name the handler gets every notice that no other one wants.
        """

        def declare(func: N) -> N:
            is_async, doc, source = declared.describe(func)
            checked = declared.check_names(types, source, "notice")
            handler = Handler(
                name=checked[0] if checked else "notice",
                func=func,
                lane=Lane.NOTICE,
                names=checked,
                timeout_s=declared.check_timeout(timeout_s, source),
                is_async=is_async,
                doc=doc,
                source=source,
            )
            routes = {name: Route(handler, Lane.NOTICE, name, "") for name in checked or ("",)}
            for name in routes:
                if (other := self._notices.get(name)) is not None:
                    raise AppError(
                        f"two handlers for notice {name or 'of any type'!r}: {other.handler.source} and {source}; "
                        "one notice has one handler: join them"
                    )
            self._notices.update(routes)
            self._handlers.append(handler)
            return func

        _refuse_bare(types, "notice")
        return declare

    def request(self, *types: object, **options: object) -> NoReturn:
        """Refused: friend and group requests are not served by this version."""
        raise _unserved("request", types, options)

    def task(self, *names: object, **options: object) -> NoReturn:
        """Refused: the task queue is not served by this version."""
        raise _unserved("task", names, options)

    def route(self, message: Message) -> Route | None:
        """The handler of a message with its arguments; None where this bot does not want it."""
        return (self._group if message.group_id else self._private).find(message.text)

    def route_notice(self, notice: Notice) -> Route | None:
        """The handler of a notice: sub-type first, then type, then any; None where this bot does not want it."""
        routes = self._notices
        if not routes:
            return None
        return routes.get(f"{notice.notice_type}.{notice.sub_type}") or routes.get(notice.notice_type) or routes.get("")

    def _add(self, handler: Handler) -> None:
        chats = {Where.GROUP: (self._group,), Where.PRIVATE: (self._private,)}
        indexes = chats.get(handler.where, (self._group, self._private))
        for index in indexes:
            if (conflict := index.conflict(handler)) is not None:
                raise conflict
        for index in indexes:
            index.add(handler)
        self._handlers.append(handler)


def _first(names: tuple[str, ...], source: str, kind: str) -> str:
    if not names:
        raise AppError(f'{source}: {kind} needs a name: write @app.{kind}("name")')
    return names[0]


def _refuse_bare(names: tuple[object, ...], kind: str) -> None:
    """`@app.command` without brackets would put the function where the name belongs and declare nothing."""
    if names and callable(names[0]):
        _, _, source = declared.describe(names[0])
        raise AppError(f'{source}: write @app.{kind}("name") with brackets and a name')


def _unserved(kind: str, names: tuple[object, ...], options: dict[str, object]) -> AppError:
    shown = ", ".join([*(repr(name) for name in names), *(f"{key}={value!r}" for key, value in options.items())])
    return AppError(
        f"@app.{kind}({shown}) is not served by this version of Pallas Cluster: its handler would never run; remove it"
    )

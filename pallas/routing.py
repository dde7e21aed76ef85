"""Which handler a text goes to: one index per kind of chat, filled by declarations, read once per message.

Matching ignores case and what surrounds the text; the longest name wins. It agrees with how deployments of a pool
decide that a command covers a text (one mark removed, then white space, then a case-folded prefix whose length is
counted before folding), except that a name must end at white space unless it is declared glued.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pallas.errors import AppError
from pallas.handler import MAX_NAME_CHARS, Handler, Route
from pallas.model import Lane

# Folding makes at most three characters of one, and a mark may stand before the name: a longer word is no name, and
# cutting it bounds what a megabyte without white space costs.
_LONGEST_HEAD = 3 * (MAX_NAME_CHARS + 1) + 1


@dataclass(slots=True, frozen=True)
class _Name:
    """One spelling of a handler's name: `spelled` with its mark, `declared` as the handler was given it."""

    handler: Handler
    declared: str
    spelled: str
    folded: str
    more: tuple[str, ...]
    """The folded words after the first one."""

    @classmethod
    def spell(cls, handler: Handler, declared: str, mark: str) -> _Name:
        spelled = mark + declared
        folded = spelled.casefold()
        return cls(handler, declared, spelled, folded, tuple(folded.split()[1:]))


class Index:
    """The names of one kind of chat; `find` is pure and costs about as much as splitting the text."""

    __slots__ = ("_chat", "_glued", "_marks", "_taken", "_words")

    def __init__(self) -> None:
        self._taken: dict[str, Handler] = {}
        self._words: dict[str, tuple[_Name, ...]] = {}
        self._glued: dict[str, tuple[_Name, ...]] = {}
        self._marks: frozenset[str] = frozenset()
        self._chat: Route | None = None

    def __repr__(self) -> str:
        return f"<Index {len(self._taken)} spellings, chat={self._chat is not None}>"

    def conflict(self, handler: Handler) -> AppError | None:
        """The error if something of this handler is already answered by another one."""
        if handler.lane is Lane.CHAT:
            if self._chat is None:
                return None
            return AppError(
                f"two chat handlers for the same messages: {_where(self._chat.handler)} and {_where(handler)}; "
                "one message has one handler: join them, or give each its own where="
            )
        seen: set[str] = set()
        for name in _spellings(handler):
            if name.folded in seen:
                return AppError(f"{_where(handler)}: the name {name.spelled!r} is given twice; give it once")
            seen.add(name.folded)
            if (taken := self._taken.get(name.folded)) is not None:
                return AppError(
                    f"two handlers for {name.spelled!r}: {_where(taken)} and {_where(handler)}; "
                    "one message has one handler: rename one of them"
                )
        return None

    def add(self, handler: Handler) -> None:
        """Take a handler in, after `conflict` found nothing against it."""
        if handler.lane is Lane.CHAT:
            self._chat = Route(handler, Lane.CHAT, "", "")
            return
        self._marks |= frozenset(handler.marks)
        for name in _spellings(handler):
            self._taken[name.folded] = handler
            table, key = (
                (self._glued, name.folded[0]) if handler.glued else (self._words, name.folded.split(None, 1)[0])
            )
            table[key] = tuple(sorted((*table.get(key, ()), name), key=lambda item: -len(item.spelled)))

    def find(self, text: str) -> Route | None:
        """The route of a message's text: the longest name, else the chat handler, else None."""
        parts = text.split(None, 1)
        if not parts:
            return self._chat
        head = parts[0]
        if head in self._marks and len(parts) > 1:
            text = head + parts[1]
            parts = text.split(None, 1)
            head = parts[0]
        folded = head[:_LONGEST_HEAD].casefold()
        words = self._words.get(folded)
        glued = self._glued.get(folded[0]) if self._glued else None
        if words is None and glued is None:
            return self._chat
        best = _by_words(words, parts[1] if len(parts) > 1 else "") if words is not None else None
        if glued is not None:
            longer = _by_prefix(glued, text.strip(), len(best[0].spelled) if best is not None else 0)
            best = longer or best
        if best is None:
            return self._chat
        name, args = best
        return Route(name.handler, name.handler.lane, name.declared, args)


def _by_words(names: tuple[_Name, ...], rest: str) -> tuple[_Name, str] | None:
    """The longest name whose further words open `rest`; a fanout wants nothing after them."""
    for name in names:
        more = name.more
        if more:
            parts = rest.split(None, len(more))
            if tuple(part.casefold() for part in parts[: len(more)]) != more:
                continue
            args = parts[-1].rstrip() if len(parts) > len(more) else ""
        else:
            args = rest.rstrip()
        if not args or name.handler.lane is not Lane.FANOUT:
            return name, args
    return None


def _by_prefix(names: tuple[_Name, ...], text: str, longer_than: int) -> tuple[_Name, str] | None:
    """The longest name that `text` begins with, if it is longer than another match."""
    for name in names:
        length = len(name.spelled)
        if length <= longer_than:
            return None
        if text[:length].casefold() == name.folded:
            return name, text[length:].strip()
    return None


def _spellings(handler: Handler) -> Iterator[_Name]:
    for declared in handler.names:
        for mark in ("", *handler.marks):
            yield _Name.spell(handler, declared, mark)


def _where(handler: Handler) -> str:
    return f"{handler.name} ({handler.source})"

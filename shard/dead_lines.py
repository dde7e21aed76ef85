"""Messages that ended as dead, as lines: which may have been answered, which were not, and where each was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pallas.model import Reason
from pallas.untrusted import visible
from shard.table import Cell, Ink, Tone, cut, table
from shard.view import DeadRow
from shard.words import Catalogue

_LATEST = 10
_HANDLER_CELLS = 32


@dataclass(slots=True, frozen=True)
class DeadLines:
    """How the dead are printed; rows come latest first."""

    words: Catalogue
    ink: Ink

    def whole(self, dead: Sequence[DeadRow], now_s: float) -> list[str]:
        """All that are kept, and what to do about them."""
        text = self.words.text
        if not dead:
            return [text("dead.none")]
        return [text("dead.kept", kept=len(dead)), "", *self._table(dead, now_s), "", "→ " + text("dead.todo")]

    def latest(self, dead: Sequence[DeadRow], counted: int, now_s: float) -> list[str]:
        """The latest of them, below the books; `counted` are those of the books."""
        text = self.words.text
        latest = dead[:_LATEST]
        title = text("dead.kept", kept=len(dead))
        if len(dead) > len(latest):
            title = text("dead.latest", shown=len(latest), kept=len(dead))
        lines = [title, *self._table(latest, now_s, indent="  ")]
        if counted > len(dead):
            lines.append("  " + self.ink.paint(text("dead.not_kept", number=counted - len(dead)), Tone.QUIET))
        return [*lines, "→ " + text("dead.todo")]

    def _table(self, dead: Sequence[DeadRow], now_s: float, indent: str = "") -> list[str]:
        names = ("said", "what", "group", "account", "handler", "shard")
        rows = [
            (
                self._said(row, now_s),
                Cell(self._words(row), Tone.WARNING if row.reason == Reason.SENT_UNKNOWN else Tone.BAD),
                visible(row.group_id) or self.words.text("dead.private"),
                visible(row.bot_id) or "—",
                cut(visible(row.handler), _HANDLER_CELLS) or "—",
                visible(row.shard_id) or "—",
            )
            for row in dead
        ]
        return table([self.words.text(f"column.{name}") for name in names], rows, self.ink, indent=indent)

    def _said(self, row: DeadRow, now_s: float) -> str:
        """When it was said, as a person finds it in the chat, and how long ago; nothing else stands in its place."""
        if row.said_at is None:
            return "—"
        clock = datetime.fromtimestamp(row.said_at).astimezone().isoformat(sep=" ", timespec="seconds")
        return f"{clock} · {self.words.age(row.said_at, now_s)}"

    def _words(self, row: DeadRow) -> str:
        what = self.words.code("dead.what", row.reason)
        return self.words.text("with.reason", state=what, reason=self.words.code("dead.cause", row.cause))

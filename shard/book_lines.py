"""The ledger as lines: equations with numbers, each judged by itself, and what to do where one does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pallas.untrusted import visible
from shard.table import Ink, Tone
from shard.view import Books, Counters
from shard.words import Catalogue


@dataclass(slots=True, frozen=True)
class BookLines:
    """How books are printed."""

    words: Catalogue
    ink: Ink

    def whole(self, books: Books) -> list[str]:
        """Each worker's equations, those of all, and those of Redis, with their reasons."""
        text = self.words.text
        verdict = text("books.balanced") if books.balanced else text("books.unbalanced", difference=books.difference)
        verdict = f"{verdict} ✓" if books.balanced else f"{verdict} ✗"
        shown = self.ink.paint(verdict, Tone.GOOD if books.balanced else Tone.BAD)
        lines = [text("books.as_of", time=_clock_time(books.as_of), verdict=shown), ""]
        for book in books.workers:
            title = text("books.worker", shard=visible(book.shard_id), epoch=book.epoch)
            lines += [title, *self._worker_book(book.counters), *self._reasons(book.counters), ""]
        if len(books.workers) != 1:
            lines += [text("books.all"), *self._worker_book(books.total), ""]
        ended = books.ended
        lines += ["Redis", self._ended(books)]
        for kind, by in (("yielded", ended.yielded), ("dropped", ended.dropped), ("dead", ended.dead)):
            lines += self._by(kind, by)
        if books.unaccounted:
            lines += ["", self.ink.paint(text("books.unaccounted", unaccounted=books.unaccounted), Tone.WARNING)]
        return lines

    def equations(self, books: Books) -> list[str]:
        """One line for the workers and one for Redis."""
        return [self._arrived(books.total), self._ended(books)]

    def advice(self, books: Books) -> list[str]:
        """What to do where an equation does not hold; nothing where all do."""
        text, lines = self.words.text, []
        off = [book for book in books.workers if book.counters.difference or book.counters.held_difference]
        if off:
            names = [text("books.worker", shard=visible(book.shard_id), epoch=book.epoch) for book in off]
            lines += ["", "→ " + text("books.off.workers", names=text("verdict.joint").join(names))]
        if books.ended.unbalanced:
            lines += ["", "→ " + text("books.off.redis")]
        return lines

    def _worker_book(self, counters: Counters) -> list[str]:
        held = self.words.text(
            "books.held",
            distinct=counters.distinct,
            taken_over=counters.taken_over,
            outcomes=sum(counters.outcomes.values()),
            released=sum(counters.released.values()),
            running=counters.running,
        )
        return [self._arrived(counters), "  " + self._judged(held, counters.held_difference)]

    def _arrived(self, counters: Counters) -> str:
        said = self.words.text(
            "books.arrived",
            arrived=counters.arrived,
            refused=sum(counters.refused.values()),
            copies=sum(counters.copies.values()),
            ignored=counters.ignored,
            distinct=counters.distinct,
        )
        if counters.pending:
            said += self.words.text("books.pending", pending=counters.pending)
        return "  " + self._judged(said, counters.difference)

    def _ended(self, books: Books) -> str:
        ended = books.ended
        said = self.words.text(
            "books.ended",
            distinct=ended.distinct,
            handled=ended.handled,
            yielded=sum(ended.yielded.values()),
            dropped=sum(ended.dropped.values()),
            dead=sum(ended.dead.values()),
            open=ended.open,
        )
        return "  " + self._judged(said, ended.difference, hidden=ended.unbalanced)

    def _judged(self, equation: str, difference: int, hidden: int = 0) -> str:
        """`hidden` is what does not show in the sums, because it cancels out in them."""
        if difference or hidden:
            off = f"{difference:+d}" if difference else f"±{hidden}"
            return f"{equation}  " + self.ink.paint(f"✗ {off}", Tone.BAD)
        return f"{equation}  " + self.ink.paint("✓", Tone.GOOD)

    def _reasons(self, counters: Counters) -> list[str]:
        lines = self._by("refused", counters.refused) + self._by("copies", counters.copies)
        lines += self._by("released", counters.released) + self._by("orphans", counters.orphans)
        if counters.standby:
            key = "books.standby.one" if counters.standby == 1 else "books.standby"
            said = self.words.text(key, standby=counters.standby)
            lines.append("    " + self.ink.paint(said, Tone.QUIET))
        return lines

    def _by(self, kind: str, by: Mapping[str, int]) -> list[str]:
        counted = sorted(
            ((count, reason) for reason, count in by.items() if count), key=lambda each: (-each[0], each[1])
        )
        if not counted:
            return []
        text = self.words.text
        items = [text("list.item", name=self.words.code("reason", reason), count=count) for count, reason in counted]
        said = text("books.by", column=text(f"books.{kind}"), reasons=text("list.joint").join(items))
        return ["    " + self.ink.paint(said, Tone.QUIET)]


def _clock_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).astimezone().isoformat(sep=" ", timespec="seconds")

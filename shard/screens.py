"""What `pallas status`, `bots` and `books` print: pure functions from what was seen to lines.

The verdict comes first and is one sentence. Text from outside is made harmless and bounded before it is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pallas.untrusted import visible
from shard.facts import connect_url, counts_json, worst_first
from shard.health import Process
from shard.table import Cell, Ink, Tone, cut, table
from shard.view import Books, BotReason, BotRow, BotState, Counters, ShardRow, ShardState
from shard.words import Catalogue

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_NICKNAME_CELLS = 20
_NAME_CELLS = 32
_STATE_TONES = {BotState.ONLINE: Tone.GOOD, BotState.OFFLINE: Tone.BAD, BotState.UNKNOWN: Tone.WARNING}


@dataclass(slots=True, frozen=True)
class Seen:
    """What one look showed; what the command did not ask for, or could not read, is None."""

    as_of: float
    folder: Path
    onebot_path: str
    processes: Sequence[Process] = ()
    bots: Sequence[BotRow] | None = None
    shards: Sequence[ShardRow] | None = None
    books: Books | None = None
    blind: str = ""
    """Why the deployment could not be read; empty where it could."""
    nothing: bool = False
    """Nothing runs that could be read."""


@dataclass(slots=True, frozen=True)
class Screen:
    """How it is printed."""

    words: Catalogue
    ink: Ink = field(default_factory=lambda: Ink(colour=False))

    def status(self, seen: Seen) -> list[str]:
        """The deployment at a glance."""
        text = self.words.text
        lines = [self._verdict(seen), "", text("status.processes", folder=seen.folder)]
        lines += self._processes(seen)
        if seen.shards is not None:
            lines += ["", text("status.workers"), *self._workers(seen, seen.shards)]
        if seen.bots:
            lines += ["", text("status.accounts"), "  " + text("bots.counts", **counts_json(seen.bots))]
            if any(row.state is not BotState.ONLINE for row in seen.bots):
                lines.append("  " + text("status.accounts.look"))
        if seen.books is not None:
            lines += ["", text("books.title"), *self._equations(seen.books.total, seen.books)]
        return lines

    def bots(self, seen: Seen) -> list[str]:
        """One line for each account."""
        if seen.bots is None:
            return [self._verdict(seen)]
        if not seen.bots:
            return self._no_bots(seen)
        text = self.words.text
        names = ("account", "nickname", "state", "shard", "end", "last_event", "says", "last_sent")
        head = [text(f"column.{name}") for name in names]
        rows = [self._bot(row, seen.as_of) for row in worst_first(seen.bots)]
        return [self._verdict(seen), "", *table(head, rows, self.ink)]

    def books(self, seen: Seen) -> list[str]:
        """Both sides of the ledger as equations, and what to do where one does not hold."""
        books, text = seen.books, self.words.text
        if books is None:
            return [self._verdict(seen)]
        verdict = text("books.balanced") if books.balanced else text("books.unbalanced", difference=books.difference)
        verdict = f"{verdict} ✓" if books.balanced else f"{verdict} ✗"
        shown = self.ink.paint(verdict, Tone.GOOD if books.balanced else Tone.BAD)
        lines = [text("books.as_of", time=_clock_time(books.as_of), verdict=shown), ""]
        for book in books.workers:
            title = text("books.worker", shard=visible(book.shard_id), epoch=book.epoch)
            lines += [title, self._arrived(book.counters), *self._reasons(book.counters), ""]
        if len(books.workers) != 1:
            lines += [text("books.all"), self._arrived(books.total), ""]
        ended = books.ended
        lines += ["Redis", self._ended(books)]
        for kind, by in (("yielded", ended.yielded), ("dropped", ended.dropped), ("dead", ended.dead)):
            lines += self._by(kind, by)
        if books.unaccounted:
            lines += ["", self.ink.paint(text("books.unaccounted", unaccounted=books.unaccounted), Tone.WARNING)]
        return lines + self._advice(books)

    def _verdict(self, seen: Seen) -> str:
        text = self.words.text
        if seen.nothing:
            return self.ink.paint(text("verdict.nothing", folder=seen.folder), Tone.BAD)
        if seen.blind:
            blind = self.ink.paint(text("verdict.blind", why=seen.blind), Tone.BAD)
            return f"{blind}\n{text('verdict.blind.todo')}"
        parts = [self._accounts(seen.bots or ()), self._live(seen.shards or ())]
        if seen.books is not None:
            parts.append(self._balance(seen.books))
            if seen.books.unaccounted:
                parts.append(Cell(text("verdict.unaccounted", unaccounted=seen.books.unaccounted), Tone.WARNING))
        painted = text("verdict.joint").join(self.ink.paint(part.text, part.tone) for part in parts)
        return text("verdict.sentence", parts=painted)

    def _accounts(self, bots: Sequence[BotRow]) -> Cell:
        online, text = sum(row.state is BotState.ONLINE for row in bots), self.words.text
        match len(bots):
            case 0:
                return Cell(text("verdict.accounts.none"), Tone.WARNING)
            case 1:
                said = text("verdict.accounts.one", online=online)
            case total:
                said = text("verdict.accounts", online=online, total=total)
        return Cell(said, Tone.GOOD if online == len(bots) else Tone.WARNING if online else Tone.BAD)

    def _live(self, shards: Sequence[ShardRow]) -> Cell:
        live, text = sum(row.state is ShardState.LIVE for row in shards), self.words.text
        if not live:
            return Cell(text("verdict.workers.none"), Tone.BAD)
        if live < len(shards):
            return Cell(text("verdict.workers.some", live=live, total=len(shards)), Tone.WARNING)
        return Cell(text("verdict.workers.one") if live == 1 else text("verdict.workers", live=live), Tone.GOOD)

    def _balance(self, books: Books) -> Cell:
        if books.balanced:
            return Cell(self.words.text("verdict.books.balanced"), Tone.GOOD)
        return Cell(self.words.text("verdict.books.off", difference=books.difference), Tone.BAD)

    def _processes(self, seen: Seen) -> list[str]:
        if not seen.processes:
            return ["  " + self.words.text("status.processes.none")]
        head = [self.words.text(f"column.{name}") for name in ("name", "pid", "url", "health")]
        rows = [
            (
                visible(each.endpoint.name),
                str(each.endpoint.pid),
                visible(each.endpoint.url, 255),
                self._health(each),
            )
            for each in seen.processes
        ]
        return table(head, rows, self.ink, right={1}, indent="  ")

    def _health(self, process: Process) -> Cell:
        text = self.words.text
        if not process.answers:
            return Cell(text("health.silent"), Tone.BAD)
        if process.ready:
            return Cell(text("health.ready"), Tone.GOOD)
        return Cell(text("health.not_ready", reason=self.words.code("health.reason", process.reason)), Tone.BAD)

    def _workers(self, seen: Seen, shards: Sequence[ShardRow]) -> list[str]:
        if not shards:
            return ["  " + self.words.text("status.workers.none")]
        names = ("shard", "state", "pid", "host", "links", "arrived", "lag", "redis", "app", "version", "up")
        head = [self.words.text(f"column.{name}") for name in names]
        rows = [
            (
                visible(row.shard_id),
                Cell(
                    self.words.code("shard", row.state.value),
                    Tone.GOOD if row.state is ShardState.LIVE else Tone.BAD,
                ),
                str(row.pid),
                cut(visible(row.host), _NAME_CELLS),
                str(row.links),
                str(row.counters.arrived),
                self._ms(row.loop_lag_ms),
                self._ms(row.redis_rtt_ms),
                cut(visible(row.app), _NAME_CELLS),
                visible(row.version),
                "—" if row.state is ShardState.LAPSED else self._age(row.started_at, seen.as_of),
            )
            for row in sorted(shards, key=lambda row: (len(row.shard_id), row.shard_id))
        ]
        return table(head, rows, self.ink, right={2, 4, 5, 6, 7}, indent="  ")

    def _no_bots(self, seen: Seen) -> list[str]:
        live = [row for row in seen.shards or () if row.state is ShardState.LIVE]
        if not live:
            return [self.words.text("bots.none.no_worker")]
        return [self.words.text("bots.none"), *(f"  {connect_url(row, seen.onebot_path)}" for row in live)]

    def _bot(self, row: BotRow, now_s: float) -> tuple[str | Cell, ...]:
        text = self.words.text
        state = self.words.code("state", row.state.value)
        if row.reason is not BotReason.CONNECTED:
            state = text("with.reason", state=state, reason=self.words.code("reason.bot", row.reason.value))
        says = "—" if row.heartbeat_online is None else text(f"says.{'online' if row.heartbeat_online else 'offline'}")
        end = f"{self.words.code('end', row.end)} {visible(row.end_version)}".strip()
        return (
            visible(row.self_id),
            cut(visible(row.nickname), _NICKNAME_CELLS),
            Cell(state, _STATE_TONES[row.state]),
            visible(row.shard_id) or "—",
            cut(end, _NAME_CELLS),
            self._age(row.last_event_at, now_s),
            says,
            self._age(row.last_sent_at, now_s),
        )

    def _equations(self, total: Counters, books: Books) -> list[str]:
        return [self._arrived(total), self._ended(books)]

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
        return "  " + self._judged(said, ended.difference)

    def _judged(self, equation: str, difference: int) -> str:
        if difference:
            return f"{equation}  " + self.ink.paint(f"✗ {difference:+d}", Tone.BAD)
        return f"{equation}  " + self.ink.paint("✓", Tone.GOOD)

    def _reasons(self, counters: Counters) -> list[str]:
        return self._by("refused", counters.refused) + self._by("copies", counters.copies)

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

    def _advice(self, books: Books) -> list[str]:
        text, lines = self.words.text, []
        off = [book for book in books.workers if book.counters.difference]
        if off:
            names = [text("books.worker", shard=visible(book.shard_id), epoch=book.epoch) for book in off]
            lines += ["", "→ " + text("books.off.workers", names=text("verdict.joint").join(names))]
        if books.ended.difference:
            lines += ["", "→ " + text("books.off.redis")]
        return lines

    def _age(self, then_s: float | None, now_s: float) -> str:
        if then_s is None:
            return "—"
        age = max(0, int(now_s - then_s))
        unit, size = next(
            (each for each in (("days", _DAY_S), ("hours", _HOUR_S), ("minutes", _MINUTE_S)) if age >= 2 * each[1]),
            ("seconds", 1),
        )
        return self.words.text(f"age.{unit}", number=age // size)

    def _ms(self, value: float | None) -> str:
        return "—" if value is None else self.words.text("unit.ms", number=f"{value:.1f}")


def _clock_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).astimezone().isoformat(sep=" ", timespec="seconds")

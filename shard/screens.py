"""What `pallas status`, `bots`, `books` and `dead list` print: pure functions from what was seen to lines.

The verdict comes first and is one sentence. Text from outside is made harmless and bounded before it is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pallas.model import Reason
from pallas.untrusted import visible
from shard.book_lines import BookLines
from shard.dead_lines import DeadLines
from shard.facts import connect_url, counts_json, worst_first
from shard.health import Process
from shard.table import Cell, Ink, Tone, cut, table
from shard.view import Books, BotReason, BotRow, BotState, DeadRow, ShardRow, ShardState
from shard.words import Catalogue

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
    dead: Sequence[DeadRow] | None = None
    """Latest first."""
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
            lines += ["", text("books.title"), *BookLines(self.words, self.ink).equations(seen.books)]
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
        """Both sides of the ledger as equations, and the latest messages that ended as dead."""
        if seen.books is None:
            return [self._verdict(seen)]
        ledger = BookLines(self.words, self.ink)
        lines = ledger.whole(seen.books)
        if seen.dead:
            counted = sum(seen.books.ended.dead.values())
            lines += ["", *DeadLines(self.words, self.ink).latest(seen.dead, counted, seen.as_of)]
        return lines + ledger.advice(seen.books)

    def dead(self, seen: Seen) -> list[str]:
        """Every message that is kept of those that ended as dead."""
        if seen.dead is None:
            return [self._verdict(seen)]
        return DeadLines(self.words, self.ink).whole(seen.dead, seen.as_of)

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
                key = "verdict.unaccounted.one" if seen.books.unaccounted == 1 else "verdict.unaccounted"
                parts.append(Cell(text(key, unaccounted=seen.books.unaccounted), Tone.WARNING))
        if seen.dead:
            parts.append(self._dead(seen.dead))
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

    def _dead(self, dead: Sequence[DeadRow]) -> Cell:
        maybe = sum(row.reason == Reason.SENT_UNKNOWN for row in dead)
        lost = len(dead) - maybe
        key = "verdict.dead.both" if lost and maybe else "verdict.dead.lost" if lost else "verdict.dead.maybe"
        return Cell(self.words.text(key, lost=lost, maybe=maybe), Tone.WARNING)

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
                "—" if row.state is ShardState.LAPSED else self.words.age(row.started_at, seen.as_of),
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
            self.words.age(row.last_event_at, now_s),
            says,
            self.words.age(row.last_sent_at, now_s),
        )

    def _ms(self, value: float | None) -> str:
        return "—" if value is None else self.words.text("unit.ms", number=f"{value:.1f}")

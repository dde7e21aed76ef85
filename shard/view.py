"""What one look at the deployment shows: accounts, workers, books and whether Redis takes writes.

The rows are facts as they were read, with times in Unix seconds; nothing here judges them a second time, and text
that came from outside (nicknames, versions) is kept as it came: whoever prints it makes it harmless. `ClusterView`
is all that pages and commands may know of how a deployment keeps its state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class BotState(StrEnum):
    """What is known of an account: `unknown` means nobody who should know can be asked."""

    ONLINE = "online"
    OFFLINE = "offline"
    UNKNOWN = "unknown"


class BotReason(StrEnum):
    """The fact that decided an account's state. Stable codes: pages translate them."""

    CONNECTED = "connected"
    LINK_CLOSED = "link_closed"
    END_SAYS_OFFLINE = "end_says_offline"
    PRESENCE_STALE = "presence_stale"
    SHARD_LAPSED = "shard_lapsed"


class ShardState(StrEnum):
    """Whether a worker's lease stands."""

    LIVE = "live"
    LAPSED = "lapsed"


@dataclass(slots=True, frozen=True)
class BotRow:
    """One account as its worker reports it."""

    self_id: str
    nickname: str
    shard_id: str
    epoch: int
    state: BotState
    reason: BotReason
    end: str
    """Which implementation is at the other end: `napcat`, `llonebot`, `lagrange`, `gocq` or `unknown`."""
    end_version: str
    connection_key: str
    adapter: str
    links: int
    heartbeat_online: bool | None
    """What the end itself claims; `None` where it does not say."""
    connected_at: float | None
    last_seen_at: float | None
    last_event_at: float | None
    last_sent_at: float | None
    """The last send that the end confirmed."""
    conduct: Mapping[str, object] = field(default_factory=dict)
    """How its end behaves, as `shard.conduct` counts and judges it; empty where that is not known."""


@dataclass(slots=True, frozen=True)
class Counters:
    """What one worker process did with the reports it received since it started."""

    arrived: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    copies: Mapping[str, int] = field(default_factory=dict)
    ignored: int = 0
    distinct: int = 0
    pending: int = 0
    """Reports whose claim is not decided yet."""
    taken_over: int = 0
    """Messages whose holder had died, or had given them back, and that this worker took."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """How the messages that this worker held ended: `handled`, `dropped:handler_error` …"""
    released: Mapping[str, int] = field(default_factory=dict)
    """Messages given back unbegun."""
    running: int = 0
    """Messages that it holds and that have not ended."""
    standby: int = 0
    """Messages of other workers that it stands by for now."""
    orphans: Mapping[str, int] = field(default_factory=dict)
    """Open messages of dead workers that it ended."""

    @property
    def difference(self) -> int:
        """Reports that are in no column; 0 where the worker's book balances."""
        refused, copies = sum(self.refused.values()), sum(self.copies.values())
        return self.arrived - refused - copies - self.ignored - self.distinct - self.pending

    @property
    def held_difference(self) -> int:
        """Messages it held that neither ended nor are in its hands; 0 where that balances."""
        gone = sum(self.outcomes.values()) + sum(self.released.values())
        return self.distinct + self.taken_over - gone - self.running

    def plus(self, other: Counters) -> Counters:
        """The two books added, column by column."""
        return Counters(
            arrived=self.arrived + other.arrived,
            refused=_added(self.refused, other.refused),
            copies=_added(self.copies, other.copies),
            ignored=self.ignored + other.ignored,
            distinct=self.distinct + other.distinct,
            pending=self.pending + other.pending,
            taken_over=self.taken_over + other.taken_over,
            outcomes=_added(self.outcomes, other.outcomes),
            released=_added(self.released, other.released),
            running=self.running + other.running,
            standby=self.standby + other.standby,
            orphans=_added(self.orphans, other.orphans),
        )


@dataclass(slots=True, frozen=True)
class ShardRow:
    """One worker as its lease and its last report describe it."""

    shard_id: str
    epoch: int
    state: ShardState
    lease_left_s: float
    """Negative where the lease lapsed that long ago."""
    pid: int
    host: str
    """The machine's name."""
    address: str
    """Where protocol ends connect, as `host:port`; a wildcard host means every address of `host`."""
    app: str
    version: str
    started_at: float | None
    links: int
    counters: Counters
    loop_lag_ms: float | None
    redis_rtt_ms: float | None


@dataclass(slots=True, frozen=True)
class WorkerBook:
    """The counters of one live worker process."""

    shard_id: str
    epoch: int
    counters: Counters


@dataclass(slots=True, frozen=True)
class EndedBook:
    """What Redis counted: distinct messages and how they ended."""

    distinct: int = 0
    handled: int = 0
    yielded: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    open: int = 0
    off: int = 0
    """Differences of the buckets, added without their signs: what is missing in one must not hide behind another."""

    @property
    def unbalanced(self) -> int:
        """How far the book is from balancing, wherever the difference stands."""
        return max(abs(self.difference), self.off)

    @property
    def difference(self) -> int:
        """Distinct messages that neither ended nor are open; 0 where the book balances."""
        ended = self.handled + sum(self.yielded.values()) + sum(self.dropped.values()) + sum(self.dead.values())
        return self.distinct - ended - self.open


@dataclass(slots=True, frozen=True)
class Books:
    """Both sides of the ledger as they stood at `as_of`."""

    as_of: float
    workers: tuple[WorkerBook, ...]
    ended: EndedBook
    unaccounted: int
    """Open messages that no live worker holds: until another takes them over or ends them."""

    @property
    def total(self) -> Counters:
        """The live workers' counters added."""
        total = Counters()
        for book in self.workers:
            total = total.plus(book.counters)
        return total

    @property
    def difference(self) -> int:
        """How far the books are from balancing; differences of opposite sign do not cancel out."""
        counters = [book.counters for book in self.workers]
        return sum(abs(each.difference) + abs(each.held_difference) for each in counters) + self.ended.unbalanced

    @property
    def balanced(self) -> bool:
        """Every report and every distinct message is in exactly one column."""
        return self.difference == 0


@dataclass(slots=True, frozen=True)
class DeadRow:
    """One message that ended as dead: `reason` says how, `cause` how it was found out."""

    at: float
    """When it was ended."""
    said_at: float | None
    """When the message was said, by the reporting end; None where its record is gone."""
    reason: str
    """`holder_lost`: nobody began to answer it; `sent_unknown`: an answer was begun and may have arrived."""
    cause: str
    """How it was found out.

    `holder_died`: its worker's lease lapsed; `given_back`: its worker could not answer and nobody else took it;
    `no_answer`: its worker heard no answer to what it had sent; `holder_forgot`: its worker had lost sight of it.
    """
    group_id: str
    """Empty for a private message."""
    shard_id: str
    epoch: int
    bot_id: str
    """The account that was to answer; empty where nobody can say."""
    handler: str
    space: str = ""
    """The key part it was claimed under; the hub does not tell it, for a private chat's names a person."""


@dataclass(slots=True, frozen=True)
class Readiness:
    """Whether a scripted write went through just now; `reason` is `ok` or the code of what failed."""

    ready: bool
    reason: str
    round_trip_ms: float | None


class ClusterView(Protocol):
    """How pages and commands look at a deployment; every method raises `RedisError` where Redis cannot answer."""

    async def bots(self) -> list[BotRow]:
        """Every account with a presence entry, live or not yet purged."""

    async def shards(self) -> list[ShardRow]:
        """Every worker whose lease stands or lapsed a short while ago."""

    async def books(self) -> Books:
        """Both sides of the ledger, read as close together as can be."""

    async def dead(self) -> list[DeadRow]:
        """What ended as dead and is kept in the list: the latest end first, of one time the latest said."""

    async def ready(self) -> Readiness:
        """One scripted write; says `ready=False` instead of raising where it knows why."""


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {reason: one.get(reason, 0) + other.get(reason, 0) for reason in sorted({*one, *other})}

"""What a fault cost, from three ledgers: what was asked and answered, which handlers ran, what Redis counted.

The window, the messages a fault is allowed to cost, comes from the test's own timeline of deaths and from what the
fake QQ wrote to whom; never from what the product says of itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pallas.simulate import Row
from tests.support.books import StoredBooks
from tests.support.runs import Run
from tests.support.traffic import Traffic

Key = tuple[str, str]
READ_GAP_S = 1.0
"""So long before its death a worker may have been given what it had not yet told Redis; and so long after it an end may
have written to a link that it did not know was gone."""


@dataclass(slots=True, frozen=True)
class Death:
    """A worker that was killed, or that slept or was cut off past its lease, on the suspend-aware clock."""

    pid: int
    url: str
    at: float
    effects: bool = True
    """Whether it may have recorded effects that it never completed: not where it died before its first."""
    until: float = 0.0
    """When it was back, where it was not dead for good."""

    def overlaps(self, run: Run) -> bool:
        """Whether this worker was at work on the run while it was away."""
        if run.pid != self.pid or run.began > max(self.at, self.until):
            return False
        return run.ended is None or run.ended > self.at

    def struck(self, url: str, asked: float, row: Row) -> bool:
        """Whether this death may have taken with it what was reported at the worker's address then."""
        near = self.at - READ_GAP_S <= asked <= max(self.at, self.until) + READ_GAP_S
        settled = sum(at <= self.at for at in row.answered_at) >= len(row.asked_at)
        return url == self.url and near and not settled


@dataclass(slots=True, frozen=True)
class Figures:
    """What came out; everything but `window`, `unknown` and the times must be zero."""

    load: int
    lost: int
    doubled: int
    doubled_runs: int
    stuck: int
    books: int
    window: int
    """Messages that the deaths may have cost."""
    lost_in_window: int
    unknown: int
    otherwise: Mapping[str, int]
    """How many messages ended otherwise than handled, by outcome and reason, the unknown ones among them."""
    takeovers: tuple[float, ...] = ()
    """How long after the death each message was answered that had been asked before it."""
    lost_keys: tuple[Key, ...] = field(default=(), repr=False)
    doubled_keys: tuple[Key, ...] = ()

    @property
    def worst_takeover_s(self) -> float:
        return max(self.takeovers, default=0.0)

    @property
    def unhandled(self) -> int:
        """All that ended otherwise than handled."""
        return sum(self.otherwise.values())

    @property
    def unseen(self) -> int:
        """Messages that were lost and that no outcome in Redis speaks for."""
        return max(0, self.lost_in_window - self.unhandled)

    @property
    def is_clean(self) -> bool:
        """Nothing outside the window is wrong."""
        return not (self.lost or self.doubled or self.doubled_runs or self.stuck or self.books)

    def as_row(self, fault: str) -> dict[str, object]:
        """The row of the table that `make chaos` prints."""
        return {
            "fault": fault,
            "load": self.load,
            "lost": self.lost,
            "doubled": self.doubled + self.doubled_runs,
            "stuck": self.stuck,
            "books": self.books,
            "unknown": self.unknown,
            "W": self.window,
            "takeover_s": round(self.worst_takeover_s, 2),
        }


def window_of(traffic: Traffic, rows: Iterable[Row], runs: Iterable[Run], deaths: Sequence[Death]) -> set[Key]:
    """The texts that the deaths may have cost.

    Those a dead worker had begun to handle and not finished, where it may have recorded their effects; and those that
    only accounts of dead workers reported, shortly before the death or while they were away.
    """
    lost = set()
    for death in deaths:
        if death.effects:
            lost |= {run.key for run in runs if death.overlaps(run)}
    for row in rows:
        asked = max(row.asked_at, default=0.0)
        if deaths and all(any(death.struck(url, asked, row) for death in deaths) for url in traffic.urls(row)):
            lost.add((row.group, row.nonce))
    return lost


def judge(traffic: Traffic, runs: Sequence[Run], books: StoredBooks, deaths: Sequence[Death] = ()) -> Figures:
    """The figures of a load that has come to rest."""
    rows = traffic.rows()
    window = window_of(traffic, rows, runs, deaths)
    lost = {(row.group, row.nonce): row.asked - row.answered for row in rows if row.asked > row.answered}
    doubled = {
        (row.group, row.nonce): row.answered - row.asked - row.unsure
        for row in rows
        if row.answered > row.asked + row.unsure
    }
    owed = Counter({(row.group, row.nonce): row.asked + row.unsure for row in rows})
    done = Counter(run.key for run in runs if run.is_done and run.key in owed)
    return Figures(
        load=sum(row.asked for row in rows),
        lost=sum(count for key, count in lost.items() if key not in window),
        doubled=sum(doubled.values()),
        doubled_runs=sum((done - owed).values()),
        stuck=books.open,
        books=abs(books.difference) + books.workers_difference,
        window=len(window),
        lost_in_window=sum(count for key, count in lost.items() if key in window),
        unknown=books.unknown,
        otherwise={name: count for name, count in books.outcomes.items() if count and name != "handled"},
        takeovers=tuple(late for death in deaths for late in _takeovers(rows, death)),
        lost_keys=tuple(lost),
        doubled_keys=tuple(doubled),
    )


def _takeovers(rows: Iterable[Row], death: Death) -> Iterable[float]:
    for row in rows:
        if len(row.asked_at) == 1 == len(row.answered_at) and row.asked_at[0] < death.at < row.answered_at[0]:
            yield row.answered_at[0] - death.at

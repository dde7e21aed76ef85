"""The ledger: what was asked, what was answered, and so what was lost or doubled.

It stands outside the product: it knows the frames that were written to workers and the sends that came back, and
nothing of claims. Honest repeats carry equal texts, so it counts per (group, text): each message that at least
one account reported must be answered once. A report whose write broke may or may not have arrived; such a message
is owed no answer, and an answer to it is no double.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pallas.simulate.answers import Sent
from pallas.simulate.options import address_of
from pallas.simulate.world import Account, Physical

_EXAMPLES = 5
_ASKED = "ping "
_ANSWERED = "pong "


@dataclass(slots=True)
class _Tally:
    """The account of one text in one group."""

    sure: int = 0
    unsure: int = 0
    answered: int = 0
    waiting: deque[float] = field(default_factory=deque)
    """When the messages without an answer were first reported."""
    asked_at: list[float] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)
    heard_by: set[int] = field(default_factory=set)
    answered_by: list[int] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return max(0, self.sure - self.answered)

    @property
    def doubled(self) -> int:
        return max(0, self.answered - self.sure - self.unsure)


@dataclass(slots=True, eq=False)
class Record:
    """What became of one physical message so far."""

    key: tuple[int, str] | None
    """Group and nonce; None for chatter."""
    receivers: int = 0
    doubtful: int = 0
    first_at: float = 0.0
    """When the first report was written, on the ledger's clock."""


@dataclass(slots=True)
class _Share:
    """What one account did."""

    reports: int = 0
    copies: int = 0
    missed: int = 0
    answered: int = 0
    refused: int = 0


@dataclass(slots=True, frozen=True)
class Example:
    """One text whose count is wrong, with who could have known."""

    group: str
    text: str
    expected: int
    answered: int
    reported_by: tuple[str, ...]
    answered_by: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Row:
    """All that is known of one text in one group; times are the ledger's clock's."""

    group: str
    nonce: str
    """What follows the `ping`."""
    asked: int
    """Messages that surely reached a worker; each is owed one answer."""
    unsure: int
    answered: int
    asked_at: tuple[float, ...]
    """When each was first reported, the unsure ones included."""
    answered_at: tuple[float, ...]
    heard_by: frozenset[int]
    """Indices of the accounts."""
    answered_by: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class LedgerReport:
    """The result of a run; `as_dict()` is its JSON form, the five promised numbers first."""

    physical: int
    """Numbered messages that at least one account reported: each is owed one answer."""
    reports: int
    """Message events written to workers, copies and chatter included."""
    answered: int
    lost: int
    doubled: int
    details: Mapping[str, Any]
    lost_examples: tuple[Example, ...]
    doubled_examples: tuple[Example, ...]

    @property
    def ok(self) -> bool:
        """Nothing lost, nothing doubled."""
        return not self.lost and not self.doubled

    def as_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts only."""
        return {
            "physical": self.physical,
            "reports": self.reports,
            "answered": self.answered,
            "lost": self.lost,
            "doubled": self.doubled,
            **self.details,
            "lost_examples": [asdict(example) for example in self.lost_examples],
            "doubled_examples": [asdict(example) for example in self.doubled_examples],
        }


class Ledger:
    """Counts as the run goes; all times are seconds of one monotonic clock."""

    def __init__(self, accounts: Sequence[Account]) -> None:
        self._accounts = accounts
        self._shares = [_Share() for _ in accounts]
        self._tallies: dict[tuple[int, str], _Tally] = {}
        self._latencies = array("d")
        self._chatter = 0
        self._repeats = 0
        self._unheard = 0
        self._strays = 0
        self.changes = 0
        """Rises with every frame written and every answer: two equal readings mean silence between them."""
        self.reports = 0
        self.sent = 0
        self.answered = 0
        self.outstanding = 0
        """Answers that are owed now."""
        self.first_report_at: float | None = None
        """When the first numbered message was written to a worker."""
        self.first_answer_at: float | None = None

    def physical(self, message: Physical) -> Record:
        """Open the record of a message that was just said."""
        said = message.said
        if not said.wanted:
            self._chatter += 1
            return Record(None)
        self.sent += 1
        self._repeats += message.repeat
        self._unheard += 1
        return Record((said.group.group_id, said.text.removeprefix(_ASKED)))

    def written(self, record: Record, account: Account, now: float, *, copy: bool = False) -> None:
        """A report is being written to the account's worker."""
        self.changes += 1
        self.reports += 1
        share = self._shares[account.index]
        share.reports += 1
        share.copies += copy
        record.receivers += 1
        if record.receivers > 1 or record.key is None:
            if record.key is not None:
                self._tallies[record.key].heard_by.add(account.index)
            return
        record.first_at = now
        if self.first_report_at is None:
            self.first_report_at = now
        tally = self._tallies.setdefault(record.key, _Tally())
        tally.heard_by.add(account.index)
        tally.waiting.append(now)
        tally.asked_at.append(now)
        if record.doubtful:
            tally.unsure -= 1
        else:
            self._unheard -= 1
        self._counted(tally, sure=1)

    def doubted(self, record: Record, account: Account, *, copy: bool = False) -> None:
        """The write of a report broke after `written`: nobody can say whether it arrived."""
        share = self._shares[account.index]
        self.reports -= 1
        share.reports -= 1
        share.copies -= copy
        record.receivers -= 1
        record.doubtful += 1
        if record.key is None or record.receivers:
            return
        tally = self._tallies[record.key]
        if record.first_at in tally.waiting:
            tally.waiting.remove(record.first_at)
        tally.unsure += 1
        self._counted(tally, sure=-1)

    def missed(self, account: Account) -> None:
        """A report was due while the account had no link, and its end keeps none."""
        self._shares[account.index].missed += 1

    def accepted(self, account: Account, sent: Sent, now: float) -> None:
        """An end accepted a send."""
        self.changes += 1
        text = sent.text.strip()
        if not sent.group_id or not text.startswith(_ANSWERED):
            self._strays += 1
            return
        if self.first_answer_at is None:
            self.first_answer_at = now
        self.answered += 1
        self._shares[account.index].answered += 1
        tally = self._tallies.setdefault((sent.group_id, text.removeprefix(_ANSWERED)), _Tally())
        if tally.waiting:
            self._latencies.append(max(0.0, now - tally.waiting.popleft()))
        tally.answered_by.append(account.index)
        tally.answered_at.append(now)
        self._counted(tally, answered=1)

    def refused(self, account: Account) -> None:
        """An end refused a send, e.g. to a group its account is not in."""
        self.changes += 1
        self._shares[account.index].refused += 1

    def _counted(self, tally: _Tally, *, sure: int = 0, answered: int = 0) -> None:
        self.outstanding -= tally.lost
        tally.sure += sure
        tally.answered += answered
        self.outstanding += tally.lost

    def report(self, **facts: Any) -> LedgerReport:
        """The books as they stand; `facts` of the run are added to the details."""
        lost = [item for item in self._tallies.items() if item[1].lost]
        doubled = [item for item in self._tallies.items() if item[1].doubled]
        ordered = sorted(self._latencies)
        return LedgerReport(
            physical=sum(tally.sure for tally in self._tallies.values()),
            reports=self.reports,
            answered=self.answered,
            lost=sum(tally.lost for _, tally in lost),
            doubled=sum(tally.doubled for _, tally in doubled),
            details={
                **facts,
                "repeats": self._repeats,
                "chatter": self._chatter,
                "copies": sum(share.copies for share in self._shares),
                "missed": sum(share.missed for share in self._shares),
                "unheard": self._unheard,
                "unsure": sum(tally.unsure for tally in self._tallies.values()),
                "strays": self._strays,
                "refused": sum(share.refused for share in self._shares),
                "latency_p50_ms": _quantile_ms(ordered, 0.5),
                "latency_p99_ms": _quantile_ms(ordered, 0.99),
                "implementations": self._summed(lambda account: account.impl.value),
                "workers": self._summed(lambda account: address_of(account.url)),
            },
            lost_examples=tuple(self._example(*item) for item in lost[:_EXAMPLES]),
            doubled_examples=tuple(self._example(*item) for item in doubled[:_EXAMPLES]),
        )

    def rows(self) -> Iterator[Row]:
        """Every text that was said or answered, for whoever looks closer than the report."""
        for (group, nonce), tally in self._tallies.items():
            yield Row(
                group=str(group),
                nonce=nonce,
                asked=tally.sure,
                unsure=tally.unsure,
                answered=tally.answered,
                asked_at=tuple(tally.asked_at),
                answered_at=tuple(tally.answered_at),
                heard_by=frozenset(tally.heard_by),
                answered_by=tuple(tally.answered_by),
            )

    def sample(self) -> Example | None:
        """One text that was said once and answered once, to be shown; the one most accounts reported."""
        good = [
            item for item in self._tallies.items() if item[1].sure == item[1].answered == 1 and item[0][1].isascii()
        ]
        return self._example(*max(good, key=lambda item: len(item[1].heard_by))) if good else None

    def _summed(self, name: Callable[[Account], str]) -> dict[str, dict[str, int]]:
        """What the accounts did, added up under the name each is given."""
        sums: dict[str, dict[str, int]] = {}
        for account, share in zip(self._accounts, self._shares, strict=True):
            into = sums.setdefault(name(account), {"accounts": 0, "reports": 0, "answered": 0})
            into["accounts"] += 1
            into["reports"] += share.reports
            into["answered"] += share.answered
        return sums

    def _example(self, key: tuple[int, str], tally: _Tally) -> Example:
        return Example(
            group=str(key[0]),
            text=_ASKED + key[1],
            expected=tally.sure,
            answered=tally.answered,
            reported_by=tuple(str(self._accounts[index].self_id) for index in sorted(tally.heard_by)),
            answered_by=tuple(str(self._accounts[index].self_id) for index in tally.answered_by),
        )


def _quantile_ms(ordered: Sequence[float], share: float) -> float | None:
    """None where nothing was measured."""
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else None

"""How one account's end behaves, judged from its own reports beside those of other accounts.

Cheap counts that the match table keeps, and what they say once there are enough of them: a clock that is off, an end
that reports no sequences, or wrong ones. It decides nothing about a message, except that the contents of ends without
sequences are compared within a second while some clock is off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

_ENOUGH = 64
"""So many of what a rule looks at make a judgement; then it starts anew, so that what was mended counts as mended."""


class Fault(StrEnum):
    """What is wrong with an end, by code."""

    CLOCK_OFF = "clock_off"
    NO_SEQUENCE = "no_sequence"
    WRONG_SEQUENCE = "wrong_sequence"
    NO_MESSAGE_ID = "no_message_id"
    REPLAYS = "replays"
    NEVER_MATCHED = "never_matched"


ADVICE = {
    Fault.CLOCK_OFF: "its times are not those of other accounts for the same messages: set the clock of its machine, "
    "or theirs; until then contents are compared within a second",
    Fault.NO_SEQUENCE: "it reports no sequence of the group, so that only contents can tell its messages: update the "
    "end (NapCat since March 2025 and LLBot since the end of 2024 report one)",
    Fault.WRONG_SEQUENCE: "its sequences are those of other people's messages, so that copies may be answered: update "
    "the end, or turn off what rewrites its events",
    Fault.NO_MESSAGE_ID: "it reports no message ids, so that what it pushes twice cannot be recognised: update the end",
    Fault.REPLAYS: "it reports many messages twice: look for a second connection to this worker in its settings",
    Fault.NEVER_MATCHED: "no other account of its groups reports what it does: look at its clock and its version",
}
"""What to do about it, for the person who reads the log."""


class Conduct:
    """The counts of one account, which only rise, and the last judgement."""

    __slots__ = (
        "_from",
        "agreed",
        "conflicts",
        "expected",
        "faults",
        "first",
        "is_off",
        "missed",
        "near",
        "private",
        "replays",
        "reports",
        "times_off",
        "without_id",
        "without_seq",
    )

    def __init__(self) -> None:
        self.reports = 0
        self.without_seq = 0
        """Reports of group messages without the group's sequence."""
        self.private = 0
        """Reports of private chats, which have no sequence anywhere."""
        self.without_id = 0
        self.replays = 0
        self.agreed = 0
        """Messages that another account reported as well, with the same time: of this worker, whoever came first, or of
        another worker before."""
        self.near = 0
        """The same, with times that differ by a second."""
        self.first = 0
        """Messages whose content no other worker had reported yet, nor a second away."""
        self.missed = 0
        """Messages that would be the same if times might differ by a second."""
        self.times_off = 0
        """Messages of one sequence whose times differ by more."""
        self.conflicts = 0
        """Sequences that another account reported with another sender."""
        self.expected = 0
        """Reports that were new although other accounts of this worker share the group."""
        self.is_off = False
        """Whether its clock, or that of whom it is compared with, counts as a second off at the moment."""
        self.faults: frozenset[Fault] = frozenset()
        self._from: dict[Fault | None, tuple[int, int]] = {}

    @property
    def with_seq(self) -> int:
        """Reports of group messages with the group's sequence."""
        return self.reports - self.without_seq - self.private

    @property
    def matched(self) -> int:
        """Messages that another account reported as well."""
        return self.agreed + self.near + self.times_off

    @property
    def compared(self) -> int:
        """Messages whose times could be compared with those of others."""
        return self.matched + self.missed + self.first

    def disagreed(self, gap_s: int) -> None:
        """Count a message whose reports by this account and another carry two times."""
        if -1 <= gap_s <= 1:
            self.near += 1
        else:
            self.times_off += 1

    def judge(self) -> frozenset[Fault]:
        """Look at what came since the last judgements; returns the faults that are new."""
        self.is_off = self._holds(_OFF, was=self.is_off)
        faults = frozenset(
            rule.fault for rule in _RULES if rule.fault and self._holds(rule, was=rule.fault in self.faults)
        )
        new = faults - self.faults
        self.faults = faults
        return new

    def _holds(self, rule: Rule, *, was: bool) -> bool:
        bad, of = rule.count(self)
        bad_from, of_from = self._from.get(rule.fault, (0, 0))
        enough = of - of_from >= _ENOUGH
        if enough:
            self._from[rule.fault] = (bad, of)
        bad, of = bad - bad_from, of - of_from
        if bad >= rule.few and bad >= rule.share * of:
            return True
        # What was a fault is mended when it is four times as rare as it would have to be to become one.
        return was and (not enough or bad * 4 >= rule.share * of)

    def oddities(self) -> dict[str, int]:
        """What came otherwise than it should have, by kind."""
        return {
            "without_seq": self.without_seq,
            "without_id": self.without_id,
            "replays": self.replays,
            "times_off": self.near + self.missed + self.times_off,
            "conflicts": self.conflicts,
        }

    def as_dict(self) -> dict[str, object]:
        """The counts and the judgement, as JSON."""
        return {
            "reports": self.reports,
            "matched": self.matched,
            **self.oddities(),
            "clock_off": self.is_off,
            "faults": sorted(self.faults),
        }


_COUNTS = ("reports", "matched", "without_seq", "without_id", "replays", "times_off", "conflicts")


def read_conduct(stored: object) -> dict[str, object]:
    """What `as_dict` wrote, as far as it is that; empty where it is something else."""
    if not isinstance(stored, dict):
        return {}
    counts = {name: stored[name] for name in _COUNTS if type(stored.get(name)) is int}
    if len(counts) < len(_COUNTS):
        return {}
    known = stored.get("faults")
    faults = sorted(fault.value for fault in Fault if isinstance(known, list) and fault.value in known)
    return {**counts, "clock_off": stored.get("clock_off") is True, "faults": faults}


class Conducts(dict[str, Conduct]):
    """The conduct of each account of a worker; one is there for whoever is asked for."""

    def __missing__(self, bot_id: str) -> Conduct:
        conduct = self[bot_id] = Conduct()
        return conduct


@dataclass(slots=True, frozen=True)
class Rule:
    """A fault is one where at least `few` and that `share` of what is looked at are bad."""

    fault: Fault | None
    count: Callable[[Conduct], tuple[int, int]]
    """How many are bad, of how many."""
    few: int
    share: float


# One report in sixteen is enough to compare within a second; to say whose clock is off takes more. People who repeat
# themselves after a second look like a clock that is off now and then, so a few in a hundred are not.
_OFF = Rule(None, lambda one: (one.near + one.missed, one.compared), few=6, share=1 / 16)
_RULES = (
    # Whoever is right disagrees with the one that is wrong, but agrees with others.
    Rule(
        Fault.CLOCK_OFF,
        lambda one: (one.near + one.missed + one.times_off, one.compared),
        few=5,
        share=0.6,
    ),
    Rule(Fault.NO_SEQUENCE, lambda one: (one.without_seq, one.reports - one.private), few=5, share=0.5),
    Rule(Fault.WRONG_SEQUENCE, lambda one: (one.conflicts, one.with_seq), few=3, share=0.3),
    Rule(Fault.NO_MESSAGE_ID, lambda one: (one.without_id, one.reports), few=20, share=0.5),
    Rule(Fault.REPLAYS, lambda one: (one.replays, one.reports), few=20, share=0.3),
    Rule(
        Fault.NEVER_MATCHED,
        lambda one: (one.expected if not one.matched else 0, one.expected + one.matched),
        few=40,
        share=1.0,
    ),
)

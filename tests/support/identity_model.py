"""The matching rule in plain Python: what Redis must decide, told the same reports in the same order.

A message is one entry; what tells two equal texts apart is that one observer reported both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR_S = 3600
SLOT_S = 16


@dataclass(slots=True, frozen=True)
class Report:
    """One observer's report of something that somebody said in one group."""

    shard: int
    mark: str
    user: str
    text: str
    time_s: int
    seq: int | None


@dataclass(slots=True)
class Entry:
    """One message, as the model knows it."""

    first: Report
    seq: int | None
    marks: set[tuple[int, str]] = field(default_factory=set)

    def knows(self, shard: int) -> bool:
        return any(number == shard for number, _ in self.marks)


class Model:
    """Decides one report after another."""

    def __init__(self, tolerance_s: int = 0) -> None:
        self.tolerance_s = tolerance_s
        self.entries: list[Entry] = []

    def wins(self, report: Report) -> bool:
        """Whether this report is the first of its message; a report that won wins when it is told again."""
        entry = self._by_sequence(report) or self._told_before(report) or self._by_content(report)
        is_new = entry is None
        if entry is None:
            entry = Entry(report, report.seq)
            self.entries.append(entry)
        if report.seq is not None and entry.seq is None:
            entry.seq = report.seq
        entry.marks.add((report.shard, report.mark))
        return is_new or entry.first == report

    def _by_sequence(self, report: Report) -> Entry | None:
        if report.seq is None:
            return None
        known = (
            entry
            for entry in reversed(self.entries)
            if (entry.seq, entry.first.user) == (report.seq, report.user)
            and abs(entry.first.time_s - report.time_s) <= HOUR_S
        )
        return next(known, None)

    def _told_before(self, report: Report) -> Entry | None:
        mark = (report.shard, report.mark)
        return next((entry for entry in self.entries if report.seq is None and mark in entry.marks), None)

    def _by_content(self, report: Report) -> Entry | None:
        near = [
            entry
            for entry in self.entries
            if (entry.first.user, entry.first.text) == (report.user, report.text)
            and abs(entry.first.time_s - report.time_s) <= self.tolerance_s
            and not entry.knows(report.shard)
            and (report.seq is None or entry.seq is None)
        ]
        # Of two as near, the rule leaves open which: Redis looks into the report's own slot of 16 seconds first.
        return min(
            near,
            key=lambda entry: (
                abs(entry.first.time_s - report.time_s),
                entry.first.time_s // SLOT_S != report.time_s // SLOT_S,
            ),
            default=None,
        )

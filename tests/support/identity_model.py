"""The matching rule in plain Python: what Redis must decide, told the same reports in the same order.

A message is one entry. Of one content there are as many as it has sequences, or as one observer has told apart.
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
    marks: list[tuple[int, str]] = field(default_factory=list)

    def told_by(self, shard: int) -> int:
        """How many reports of that shard were taken for this message."""
        return sum(number == shard for number, _ in self.marks)


class Model:
    """Decides one report after another."""

    def __init__(self, tolerance_s: int = 0) -> None:
        self.tolerance_s = tolerance_s
        self.entries: list[Entry] = []

    def wins(self, report: Report) -> bool:
        """Whether this report is the first of its message; a report that won wins when it is told again."""
        mark = (report.shard, report.mark)
        told = any(mark in entry.marks for entry in self._alike(report))
        entry = self._by_sequence(report)
        if entry is None and (told or self._leaves_one(report)):
            entry = self._told_before(report) or self._by_content(report)
        is_new = entry is None
        if entry is None:
            entry = Entry(report, report.seq)
            self.entries.append(entry)
        if report.seq is not None and entry.seq is None:
            entry.seq = report.seq
        if not told:
            entry.marks.append(mark)
        return is_new or entry.first == report

    def _alike(self, report: Report) -> list[Entry]:
        """Entries of the same content; those of the report's own slot of 16 seconds first, as Redis reads them."""
        alike = [entry for entry in self.entries if (entry.first.user, entry.first.text) == (report.user, report.text)]
        return sorted(alike, key=lambda entry: entry.first.time_s // SLOT_S != report.time_s // SLOT_S)

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
        if report.seq is not None:
            return None
        near = (entry for entry in self._alike(report) if any(mark == report.mark for _, mark in entry.marks))
        return next(near, None)

    def _near(self, report: Report) -> list[Entry]:
        return [entry for entry in self._alike(report) if abs(entry.first.time_s - report.time_s) <= self.tolerance_s]

    def _leaves_one(self, report: Report) -> bool:
        """Whether there are more messages than this shard has told of."""
        near = self._near(report)
        return len(near) > sum(entry.told_by(report.shard) for entry in near)

    def _by_content(self, report: Report) -> Entry | None:
        near = self._near(report)
        fitting = [
            entry for entry in near if not entry.told_by(report.shard) and (report.seq is None or entry.seq is None)
        ]
        if fitting:
            return min(fitting, key=lambda entry: abs(entry.first.time_s - report.time_s))
        # All that are left for it are open ones that its shard has told of in other words.
        return next((entry for entry in near if entry.seq is None and entry.told_by(report.shard)), None)

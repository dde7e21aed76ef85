"""What a bench found: figures, baselines and ratios, each beside the bar it should reach.

Rounds of ours and of the baseline take turns in one run, and a ratio is the median of the rounds' own ratios: a
machine that is busy for a while then slows both. Pure arithmetic and text; measures nothing itself.
"""

from __future__ import annotations

import os
import platform
import statistics
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Figure = int | float


@dataclass(slots=True, frozen=True)
class Bar:
    """What a figure should reach: at least `limit`, or at most where `less_is_better`."""

    limit: float
    less_is_better: bool = False

    def __str__(self) -> str:
        return f"{'≤' if self.less_is_better else '≥'} {self.limit:g}"

    def met(self, figure: float) -> bool:
        return figure <= self.limit if self.less_is_better else figure >= self.limit


@dataclass(slots=True, frozen=True)
class Line:
    """One comparison for people; `judged` is the figure that `bar` is about, None where it could not be measured."""

    what: str
    ours: str
    baseline: str = ""
    judged: float | None = None
    bar: Bar | None = None

    def verdict(self) -> str:
        if self.bar is None:
            return ""
        if self.judged is None:
            return "not compared"
        return "met" if self.bar.met(self.judged) else "MISSED"


@dataclass(slots=True)
class Result:
    """All that one bench found; `figures` are the keys of `--json`."""

    name: str
    figures: dict[str, Figure] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The figures, with every bar and whether it was met."""
        bars = {
            line.what: {"bar": str(line.bar), "figure": rounded(line.judged), "met": line.bar.met(line.judged)}
            for line in self.lines
            if line.bar is not None and line.judged is not None
        }
        return {"bench": self.name, **self.figures, "bars": bars, "notes": self.notes, "machine": machine()}

    def text(self) -> str:
        """The same as a table for a terminal."""
        head = ("", "ours", "baseline", "ratio or figure", "bar", "")
        rows = [
            (
                line.what,
                line.ours,
                line.baseline,
                "" if line.judged is None else f"{rounded(line.judged):g}",
                "" if line.bar is None else str(line.bar),
                line.verdict(),
            )
            for line in self.lines
        ]
        return "\n".join([self.name, table(head, rows), *(f"  {note}" for note in self.notes)])


def median(values: Sequence[float]) -> float:
    """The middle of the rounds. Raises ValueError where there was none."""
    if not values:
        raise ValueError("a median needs at least one round")
    return statistics.median(values)


def ratio(ours: Sequence[float], baseline: Sequence[float]) -> float:
    """The median of what each round's two figures say of each other."""
    return median([mine / theirs for mine, theirs in zip(ours, baseline, strict=True)])


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0-1) of the values do not exceed."""
    if not values:
        raise ValueError("a quantile needs at least one value")
    ordered = sorted(values)
    place = -int(-share * len(ordered) // 1) - 1
    return ordered[min(max(place, 0), len(ordered) - 1)]


def rounded(figure: float | None) -> Figure | None:
    """Three figures that mean something; a whole number from a hundred on."""
    if figure is None:
        return None
    return round(figure) if abs(figure) >= 100 else float(f"{figure:.3g}")


def keep(figures: Mapping[str, float]) -> dict[str, Figure]:
    """Figures as they are published."""
    return {name: rounded(figure) or 0 for name, figure in figures.items()}


def machine() -> dict[str, Any]:
    """On what it was measured."""
    return {
        "cpus": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; all but the first are set to the right."""
    widths = [max(_width(row[place]) for row in [head, *rows]) for place in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [
            cell + " " * (width - _width(cell)) if place == 0 else " " * (width - _width(cell)) + cell
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)

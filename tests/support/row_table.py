"""The table of the fault matrix: one line per test that is marked with its row, and what it measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tests.support.judge import Figures

Record = Callable[[str, Figures], None]
_COLUMNS = ("load", "lost", "doubled", "stuck", "books", "unknown", "W", "takeover_s")
_KEPT = "fault-matrix"


def note(request: pytest.FixtureRequest, **facts: object) -> None:
    """Keep what a test measured for its line of the table; survives the way between test processes."""
    request.node.user_properties.append((_KEPT, json.dumps(facts)))


def name_row(item: pytest.Item) -> None:
    """Keep a test's row, so that it has a line also where it fails before it measures anything."""
    for marker in item.iter_markers("row"):
        item.user_properties.append((_KEPT, json.dumps({"row": marker.args[0]})))


def table(reports: Iterable[Any]) -> list[str]:
    """The lines for the reports of tests; empty where none belongs to a row."""
    lines = [_line(report) for report in reports if _facts(report).get("row")]
    if not lines:
        return []
    widths = [max(len(cells[column]) for cells in [_head(), *lines]) for column in range(len(_head()))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in [_head(), *sorted(lines, key=_place)]
    ]


def _head() -> list[str]:
    return ["row", *_COLUMNS, "result", "fault"]


def _line(report: Any) -> list[str]:
    facts = _facts(report)
    fault = facts.get("fault") or report.nodeid.rsplit("::", 1)[-1].removeprefix("test_").replace("_", " ")
    return [facts["row"], *(str(facts.get(name, "·")) for name in _COLUMNS), report.outcome, fault]


def _facts(report: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in report.user_properties:
        if name == _KEPT:
            found |= json.loads(value)
    return found


def _place(cells: Sequence[str]) -> tuple[int, str]:
    number = cells[0].removeprefix("F")
    return int(number) if number.isdecimal() else 0, cells[-1]

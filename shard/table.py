"""Lines and tables for a terminal: columns that stay straight with Chinese in them, and colours only where wanted.

Knows nothing of what it prints. Text must be harmless already (`pallas.untrusted.visible`): an escape character in it
would reach the terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

_GAP = "  "
_NO_CELL = frozenset({"Mn", "Me", "Cf"})


class Tone(StrEnum):
    """How a piece of text is meant; the value is its SGR code."""

    PLAIN = ""
    GOOD = "32"
    WARNING = "33"
    BAD = "31;1"
    QUIET = "2"


@dataclass(slots=True, frozen=True)
class Cell:
    """A piece of text with its tone."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(slots=True, frozen=True)
class Ink:
    """Paints text, or leaves it alone where `colour` is off."""

    colour: bool

    def paint(self, text: str, tone: Tone) -> str:
        """`text` in its tone."""
        return f"\x1b[{tone.value}m{text}\x1b[0m" if self.colour and tone and text else text


def width(text: str) -> int:
    """How many cells of a terminal `text` takes."""
    return sum(_cells(char) for char in text)


def cut(text: str, cells: int) -> str:
    """`text` in at most `cells` cells, ending in `…` where something was cut off."""
    if width(text) <= cells:
        return text
    kept, used = [], 1
    for char in text:
        used += _cells(char)
        if used > cells:
            break
        kept.append(char)
    return "".join(kept) + "…"


def padded(text: str, cells: int, *, right: bool = False) -> str:
    """`text` filled up with spaces to `cells` cells."""
    fill = " " * max(0, cells - width(text))
    return fill + text if right else text + fill


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    ink: Ink,
    *,
    right: Collection[int] = (),
    indent: str = "",
) -> list[str]:
    """The lines of a table; the columns numbered in `right` stand flush right."""
    cells = [[each if isinstance(each, Cell) else Cell(each) for each in row] for row in rows]
    cells.insert(0, [Cell(title, Tone.QUIET) for title in head])
    widths = [max(width(row[column].text) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        pieces = []
        for column, cell in enumerate(row):
            is_last = column == len(row) - 1 and column not in right
            text = cell.text if is_last else padded(cell.text, widths[column], right=column in right)
            pieces.append(ink.paint(text, cell.tone))
        lines.append((indent + _GAP.join(pieces)).rstrip())
    return lines


def _cells(char: str) -> int:
    if unicodedata.category(char) in _NO_CELL:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1

"""What a deliberate break of the product is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Mutant:
    """One break; `old` stands exactly once in `file`, `test` fails with `new` in its place."""

    name: str
    file: str
    old: str
    new: str
    test: str

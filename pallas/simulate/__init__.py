"""Simulated accounts, groups and people, with a ledger of what was asked and answered.

`pallas demo` and the tests drive running workers with it from outside, through real WebSockets. It knows how
protocol ends behave and nothing of how the product parses, matches or claims.
"""

from __future__ import annotations

from pallas.simulate.drive import Progress, Stage, run, simulated
from pallas.simulate.ledger import LedgerReport, Row
from pallas.simulate.options import Conduct, Options

__all__ = ["Conduct", "LedgerReport", "Options", "Progress", "Row", "Stage", "run", "simulated"]

"""The judgement of every account's end on a timer: logged once when something is wrong, counted for the metrics.

What an end did wrong is seen in its reports alone; that nobody hears from it at all is for presence to find.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import structlog

from pallas.log_limit import LimitedLog, LogLimit
from pallas.metrics import Meters
from shard.conduct import ADVICE, Conduct, Conducts

_log = structlog.get_logger()
PERIOD_S = 10.0


class _Looked(NamedTuple):
    """An account as it was at the last look."""

    conduct: Conduct
    reports: int
    oddities: dict[str, int]


class SelfCheck:
    """Judges the accounts of one worker."""

    def __init__(self, conducts: Conducts, meters: Meters) -> None:
        self._conducts = conducts
        self._meters = meters
        self._looked: dict[str, _Looked] = {}
        self._oddities: Counter[str] = Counter()
        """Of all accounts that there ever were; those that are forgotten count on in it."""
        self.complaints = LimitedLog(LogLimit(per_min=6), _log)

    async def look(self) -> None:
        """Judge whoever has reported since the last look."""
        suspects: Counter[str] = Counter()
        looked: dict[str, _Looked] = {}
        for bot_id, conduct in self._conducts.items():
            last = self._looked.get(bot_id)
            if last is None or last.conduct is not conduct:
                last = _Looked(conduct, 0, {})
            if conduct.reports != last.reports:
                self._judge(bot_id, conduct)
            oddities = conduct.oddities()
            self._oddities.update(oddities)
            self._oddities.subtract(last.oddities)
            suspects.update(fault.value for fault in conduct.faults)
            looked[bot_id] = _Looked(conduct, conduct.reports, oddities)
        self._looked = looked
        self._meters.oddities = dict(self._oddities)
        self._meters.suspects = {fault.value: suspects[fault.value] for fault in ADVICE}

    def _judge(self, bot_id: str, conduct: Conduct) -> None:
        had = conduct.faults
        new = conduct.judge()
        for fault in sorted(new):
            # By fault, not by account: one mistake of a whole fleet's set-up is one minute's lines.
            self.complaints.warning(
                "end.suspect", fault.value, bot_id=bot_id, hint=ADVICE[fault], counts=conduct.oddities()
            )
        for fault in sorted(had - conduct.faults):
            _log.info("end.mended", fault=fault.value, bot_id=bot_id)

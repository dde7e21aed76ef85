"""The judgement of every account's end on a timer: logged once when something is wrong, counted for the metrics.

What an end did wrong is seen in its reports alone; that nobody hears from it at all is for presence to find.
"""

from __future__ import annotations

from collections import Counter

import structlog

from pallas.log_limit import LimitedLog, LogLimit
from pallas.metrics import Meters
from shard.conduct import ADVICE, Conduct, Conducts

_log = structlog.get_logger()
PERIOD_S = 10.0


class SelfCheck:
    """Judges the accounts of one worker."""

    def __init__(self, conducts: Conducts, meters: Meters) -> None:
        self._conducts = conducts
        self._meters = meters
        self._judged: dict[str, int] = {}
        """Reports of each account when it was last judged."""
        self.complaints = LimitedLog(LogLimit(per_min=6), _log)

    async def look(self) -> None:
        """Judge whoever has reported since the last look."""
        oddities: Counter[str] = Counter()
        suspects: Counter[str] = Counter()
        for bot_id, conduct in self._conducts.items():
            if conduct.reports != self._judged.get(bot_id):
                self._judged[bot_id] = conduct.reports
                self._judge(bot_id, conduct)
            oddities.update(conduct.oddities())
            suspects.update(fault.value for fault in conduct.faults)
        self._meters.oddities = dict(oddities)
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

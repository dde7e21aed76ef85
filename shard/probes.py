"""The plain HTTP pages of a worker: alive, ready, metrics. They hold no secrets and ask for no token.

Whether Redis takes writes is asked at most once in a while, however many strangers look.
"""

from __future__ import annotations

from collections.abc import Callable

from pallas.clock import Clock
from pallas.metrics import MeterCollector, Meters, exposition
from pallas.onebot.listener import Page, Pages
from shard.view import ClusterView, Readiness

_SHARE_S = 0.5


class Probes:
    """Answers for one worker; `obstacle` names what keeps it from taking messages, or is empty."""

    def __init__(self, view: ClusterView, meters: Meters, clock: Clock, obstacle: Callable[[], str]) -> None:
        self._view = view
        self._meters = meters
        self._clock = clock
        self._obstacle = obstacle
        self._asked_at = float("-inf")
        self._known = Readiness(ready=False, reason="redis_unavailable", round_trip_ms=None)

    def pages(self) -> Pages:
        """By path."""
        return {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}

    async def _healthz(self) -> Page:
        return Page(200, b"ok\n")

    async def _readyz(self) -> Page:
        obstacle = self._obstacle()
        if obstacle:
            return Page(503, f"{obstacle}\n".encode())
        if self._clock.mono() - self._asked_at >= _SHARE_S:
            self._asked_at = self._clock.mono()
            self._known = await self._view.ready()
        return Page(200 if self._known.ready else 503, f"{self._known.reason}\n".encode())

    async def _metrics(self) -> Page:
        body = exposition(MeterCollector(self._meters))
        return Page(200, body, "text/plain; version=0.0.4; charset=utf-8")

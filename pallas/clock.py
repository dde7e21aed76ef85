"""The two clocks, by the name of their use: one to store, one to measure.

`mono` goes on counting while the host sleeps (where the system has such a clock), so that a worker that was
suspended past its lease knows it on waking, before any other act. Leases themselves are decided by Redis time.
"""

from __future__ import annotations

import time
from typing import Protocol

_MONO_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What code that needs the time is given."""

    def wall_s(self) -> float:
        """Seconds since 1970, to store and to compare with an event's own time."""

    def mono(self) -> float:
        """Seconds from an arbitrary start, to measure; counts through suspension."""


class SystemClock:
    """The host's clocks."""

    __slots__ = ()

    def wall_s(self) -> float:
        return time.time()

    def mono(self) -> float:
        return time.clock_gettime(_MONO_CLOCK)

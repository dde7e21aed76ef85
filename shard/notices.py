"""Which reports of a notice are one happening: they carry no sequence, and each end stamps its own time.

Matched by content alone, within the seconds by which ends' clocks may differ; an account that has reported a happening
never matches it again. Which worker acts on it is not decided here.
"""

from __future__ import annotations

import random
from collections import deque

from shard.matching import Standing


class Sighting:
    """A notice as this worker knows it; `observers` tells who reported it, and when by their own clocks."""

    __slots__ = ("body", "born", "number", "observers", "space", "time_s")

    def __init__(self, space: str, body: bytes, bot_id: str, time_s: int, born: float, number: int) -> None:
        self.space = space
        self.body = body
        self.observers = {bot_id: time_s}
        self.time_s = time_s
        self.born = born
        self.number = number


class NoticeTable:
    """Notices of the last while, matched by content alone: they carry no sequence, and each end its own time."""

    def __init__(self, *, max_entries: int, keep_s: float, clocks_s: int) -> None:
        self._max_entries = max_entries
        self._keep_s = keep_s
        self._clocks_s = clocks_s
        self._sightings: dict[tuple[str, bytes], list[Sighting]] = {}
        self._order: deque[Sighting] = deque()
        self._number = random.getrandbits(32)

    def __len__(self) -> int:
        return len(self._order)

    def observe(self, bot_id: str, space: str, body: bytes, time_s: int, now: float) -> tuple[Standing, Sighting]:
        """Match a report; the sighting nearest in time that this account has not reported is the same happening."""
        while self._order and (now - self._order[0].born > self._keep_s or len(self._order) >= self._max_entries):
            self._forget(self._order.popleft())
        known = self._sightings.setdefault((space, body), [])
        near = [seen for seen in known if abs(seen.time_s - time_s) <= self._clocks_s]
        for seen in near:
            # The same account with the same second: the end pushed it again.
            if seen.observers.get(bot_id) == time_s:
                return Standing.AGAIN, seen
        fresh = [seen for seen in near if bot_id not in seen.observers]
        if fresh:
            best = min(fresh, key=lambda seen: abs(seen.time_s - time_s))
            best.observers[bot_id] = time_s
            return Standing.ANOTHER, best
        self._number += 1
        sighting = Sighting(space, body, bot_id, time_s, now, self._number)
        known.append(sighting)
        self._order.append(sighting)
        return Standing.NEW, sighting

    def _forget(self, sighting: Sighting) -> None:
        key = (sighting.space, sighting.body)
        left = [seen for seen in self._sightings.get(key, ()) if seen is not sighting]
        if left:
            self._sightings[key] = left
        else:
            self._sightings.pop(key, None)

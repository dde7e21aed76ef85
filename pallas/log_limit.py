"""At most so many log lines a minute about one thing, however often it happens.

Strangers decide how often a wrong token or a broken frame arrives; they must not decide how large the log becomes, nor
how much is remembered about them: beyond `max_keys` different keys all further ones share one allowance.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import structlog

from pallas.clock import SystemClock

_WINDOW_S = 60.0
_OTHERS = object()


@dataclass(slots=True)
class _Window:
    began: float
    passed: int = 0
    held_back: int = 0


class LogLimit:
    """Counts lines per key in windows of one minute."""

    def __init__(self, *, per_min: int = 5, max_keys: int = 256, mono: Callable[[], float] | None = None) -> None:
        self._per_min = per_min
        self._max_keys = max_keys
        self._mono = SystemClock().mono if mono is None else mono
        self._windows: dict[Hashable, _Window] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def passes(self, key: Hashable) -> int | None:
        """`None` if the line must be held back; else how many of this key were held back before it."""
        now = self._mono()
        window = self._windows.get(key)
        if window is None:
            key = self._place_for(key, now)
            window = self._windows.setdefault(key, _Window(now))
        held_back = 0
        if now - window.began >= _WINDOW_S:
            held_back = window.held_back
            window = self._windows[key] = _Window(now)
        if window.passed >= self._per_min:
            window.held_back += 1
            return None
        window.passed += 1
        return held_back

    def ended(self) -> list[tuple[Hashable, int]]:
        """Forget the windows that are over; those that held lines back, with how many."""
        now = self._mono()
        over = [(key, window) for key, window in self._windows.items() if now - window.began >= _WINDOW_S]
        for key, _ in over:
            del self._windows[key]
        return [(key, window.held_back) for key, window in over if window.held_back]

    def _place_for(self, key: Hashable, now: float) -> Hashable:
        if len(self._windows) < self._max_keys:
            return key
        others = self._windows.setdefault(_OTHERS, _Window(now))
        for old, window in list(self._windows.items()):
            if old is not _OTHERS and now - window.began >= _WINDOW_S:
                del self._windows[old]
                others.held_back += window.held_back
        return key if len(self._windows) < self._max_keys else _OTHERS


class LimitedLog:
    """Warnings about what strangers do, a bounded number a minute, then one line with the count of the rest."""

    def __init__(self, limit: LogLimit, log: Any = None) -> None:
        self._limit = limit
        self._log = structlog.get_logger() if log is None else log

    def warning(self, event: str, key: str, **fields: Any) -> None:
        """Log `event` unless (`event`, `key`) has used up its lines of this minute."""
        held_back = self._limit.passes((event, key))
        if held_back is None:
            return
        if held_back:
            fields["suppressed"] = held_back
        self._log.warning(event, key=key, **fields)

    def flush(self) -> None:
        """One line for each kind that was held back in a minute that is over; call it every few seconds."""
        for key, held_back in self._limit.ended():
            event, about = key if isinstance(key, tuple) else ("log.suppressed", "others")
            self._log.warning(event, key=about, suppressed=held_back)

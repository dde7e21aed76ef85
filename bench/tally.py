"""What the benched application does with each message, on our side and on the baseline's: it notes that it came.

Kept apart from both frameworks, so that both pay the same for it: an append, and where latency is measured a look at
the clock. Exact numbers come from the texts, after the last message.
"""

from __future__ import annotations

import time

import orjson

from bench.frames import CONTROL, number_of, stamp_of
from bench.measure import quantile


class Tally:
    """Counts one run: `!begin KIND EXPECTED` starts it, `!report` asks what was seen."""

    def __init__(self) -> None:
        self._seen: list[str] = []
        self._at: list[int] | None = None
        self._expected = 0
        self._ended_ns = 0

    def take(self, text: str) -> str | None:
        """Note one message; the answer to send, if any: the last expected one is answered with `!done`."""
        if text[0] == CONTROL:
            return self._control(text[1:].split())
        if self._at is not None:
            self._at.append(time.monotonic_ns())
        seen = self._seen
        seen.append(text)
        if len(seen) == self._expected:
            self._ended_ns = time.monotonic_ns()
            return f"{CONTROL}done"
        return None

    def _control(self, words: list[str]) -> str:
        if words[0] == "begin":
            self._seen = []
            self._at = [] if words[1] == "paced" else None
            self._expected = int(words[2])
            self._ended_ns = 0
            return f"{CONTROL}ready"
        return f"{CONTROL}report {orjson.dumps(self._report()).decode()}"

    def _report(self) -> dict[str, float]:
        seen = self._seen
        report: dict[str, float] = {
            "handled": len(seen),
            "distinct": len({number_of(text) for text in seen}),
            "ended_ns": self._ended_ns,
        }
        if self._at:
            took = [(at - stamp_of(text)) / 1e6 for at, text in zip(self._at, seen, strict=True)]
            report |= {"p50_ms": quantile(took, 0.5), "p99_ms": quantile(took, 0.99), "max_ms": max(took)}
        return report

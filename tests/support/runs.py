"""The runs of handlers as the bots of `tests.support.ledger_bot` noted them, whatever became of their processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Run:
    """One run of a handler; times are the suspend-aware clock's, which all processes of a machine share."""

    group: str
    nonce: str
    pid: int
    began: float
    ended: float | None = None
    error: str = ""
    """The kind of exception that ended it."""

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.nonce

    @property
    def is_done(self) -> bool:
        """It came to its own end: neither killed nor refused."""
        return self.ended is not None and not self.error


def read_runs(folder: Path) -> list[Run]:
    """All runs so far, in the order of their start."""
    runs: list[Run] = []
    for path in sorted(folder.glob("*.jsonl")):
        open_: dict[tuple[str, str], list[Run]] = {}
        for line in _lines(path):
            key = line["group"], line["nonce"]
            if line["phase"] == "began":
                run = Run(*key, pid=line["pid"], began=line["at"])
                runs.append(run)
                open_.setdefault(key, []).append(run)
            else:
                run = open_[key].pop(0)
                run.ended, run.error = line["at"], line["error"]
    return sorted(runs, key=lambda run: run.began)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text("utf-8").splitlines():
        # The last line may be half written: the process is alive, or was killed in it.
        with contextlib.suppress(ValueError):
            yield json.loads(text)

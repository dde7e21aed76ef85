"""`python -m tests.chaos.soak`: a whole deployment under steady load, and whether its memory stays flat.

The load comes in rounds with a new seed each, so that links close and open again as well. What is looked at is each
process's resident memory, by a line through the samples after the first quarter; the ledger of every round must show
nothing lost and nothing doubled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.deployment import Site, ended, ledger, ready_line, site
from tests.support.processes import PallasProcess

_SAMPLE_S = 5.0
_MIB = 2**20
_SHORTEST_MIN = 20.0


@dataclass(slots=True)
class Memory:
    """Resident memory of one process over time."""

    name: str
    pid: int
    samples: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since the start, MiB)"""

    def sample(self, now: float) -> None:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        self.samples.append((now, pages * 4096 / _MIB))

    def slope_per_h(self) -> float:
        """MiB per hour by least squares, without the first quarter, in which caches fill."""
        late = self.samples[len(self.samples) // 4 :]
        middle = sum(at for at, _ in late) / len(late)
        mean = sum(size for _, size in late) / len(late)
        spread = sum((at - middle) ** 2 for at, _ in late) or 1.0
        return sum((at - middle) * (size - mean) for at, size in late) / spread * 3600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run for the time that was asked for; 1 where memory grew or a message was lost or doubled."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=300.0, help="messages per second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--round-s", type=float, default=300.0, help="seconds of load between reconnects")
    parser.add_argument("--limit", type=float, default=4.0, help="MiB per hour that count as flat")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pallas-soak-") as name:
        # Times as an operator has them, not those of the tests.
        plain = {"PALLAS_TESTING": "0", "PALLAS_LEASE_S": "10", "PALLAS_REDIS_DEAD_AFTER_MS": "3000"}
        plain |= {"PALLAS_PRESENCE_PURGE_S": "120", "PALLAS_PRESENCE_REFRESH_S": "15", "PALLAS_DRAIN_GRACE_S": "10"}
        with site(Path(name), PALLAS_LOG_LEVEL="warning", **plain) as here:
            return _run(here, chosen)


def _run(here: Site, chosen: argparse.Namespace) -> int:
    up = here.up(chosen.workers)
    line = ready_line(up)
    assert line is not None
    memories = [Memory(name, pid) for name, pid in _pids(line).items()]
    began, rounds, totals = time.monotonic(), 0, {"physical": 0, "reports": 0, "answered": 0, "lost": 0, "doubled": 0}
    while (elapsed := time.monotonic() - began) < chosen.minutes * 60:
        rounds += 1
        seconds = min(chosen.round_s, max(10.0, chosen.minutes * 60 - elapsed))
        load = here.start(f"load-{rounds}", "demo", "--json", *_load(chosen, seconds, rounds))
        _watch(load, memories, began, seconds + 120)
        found = ledger(load)
        for key in totals:
            totals[key] += int(found[key])
        if not chosen.json:
            sizes = ", ".join(f"{one.name} {one.samples[-1][1]:.1f} MiB" for one in memories)
            minutes = (time.monotonic() - began) / 60
            print(f"{minutes:5.1f} min  {totals['physical']} messages, lost {totals['lost']}, "
                  f"doubled {totals['doubled']}; {sizes}", flush=True)  # fmt: skip
    # In the first minutes caches fill: a slope of them says nothing.
    slopes = {one.name: round(one.slope_per_h(), 2) for one in memories} if chosen.minutes >= _SHORTEST_MIN else {}
    flat = all(slope <= chosen.limit for name, slope in slopes.items() if name != "valkey") if slopes else None
    sound = not totals["lost"] and not totals["doubled"]
    result = {
        **totals,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "memory": {
            one.name: {
                "first_mib": round(one.samples[len(one.samples) // 4][1], 1),
                "last_mib": round(one.samples[-1][1], 1),
                "slope_mib_per_h": slopes.get(one.name),
            }
            for one in memories
        },
        "flat": flat,
    }
    print(json.dumps(result, indent=None if chosen.json else 2))
    return 0 if flat is not False and sound else 1


def _load(chosen: argparse.Namespace, seconds: float, seed: int) -> list[str]:
    options = {"accounts": 8, "groups": 40, "messages": int(chosen.rate * seconds), "rate": chosen.rate, "seed": seed}
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def _watch(load: PallasProcess, memories: list[Memory], began: float, limit_s: float) -> None:
    limit = time.monotonic() + limit_s
    while load.exit_code is None and time.monotonic() < limit:
        for one in memories:
            one.sample(time.monotonic() - began)
        try:
            load.wait(_SAMPLE_S)
        except subprocess.TimeoutExpired:
            continue
    ended(load, 5)


def _pids(line: dict[str, object]) -> dict[str, int]:
    pids = line["pids"]
    assert isinstance(pids, dict)
    return {str(name): int(pid) for name, pid in pids.items()}


if __name__ == "__main__":
    sys.exit(main())

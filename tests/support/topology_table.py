"""One line for each kind of server that the topology tests ran on, with how they went."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

TOPOLOGIES = ("tcp", "unix", "tls", "sentinel", "cluster", "memory")
"""What a URL can name."""
_TEST = re.compile(r"test_topologies\.py::\w+\[(?P<kind>[^]]+)\]$")


def lines(stats: Mapping[str, Iterable[Any]]) -> list[str]:
    """The lines, in the order above and then by name; empty where no topology test ran. `stats` is pytest's own."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in stats.get(outcome, ()):
            found = _TEST.search(report.nodeid)
            if found and (outcome != "passed" or report.when == "call"):
                counts[found["kind"]][outcome] += 1
    places = {kind: place for place, kind in enumerate(TOPOLOGIES)}
    ordered = sorted(counts, key=lambda kind: (places.get(kind, len(places)), kind))
    return [
        f"topology {kind}: {', '.join(f'{count} {outcome}' for outcome, count in counts[kind].items())}"
        for kind in ordered
    ]

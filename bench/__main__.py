"""`python -m bench NAME [--json] [--runs N]`: measures, prints, and ends every process it started."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from bench import claims, ingress
from bench.measure import Result
from pallas import log
from pallas.process import INTERRUPTED, Stopping, run, unless

Bench = Callable[[int], Awaitable[Result]]

_BENCHES: Mapping[str, tuple[Bench, int]] = MappingProxyType(
    {"claims": (claims.run, 9), "ingress": (ingress.run, 5)},
)


def main() -> int:
    """The exit code: 0 also where a bar was missed, 1 where something could not be measured or was lost."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Figures, each beside a baseline.")
    parser.add_argument("name", choices=[*_BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, help="rounds of each variant (default: claims 9, ingress 5)")
    given = parser.parse_args()
    if given.runs is not None and given.runs < 1:
        parser.error("--runs must be at least 1")
    log.configure(level="warning", form="console", secrets=())
    names = list(_BENCHES) if given.name == "all" else [given.name]
    return run(lambda stopping: _measure(names, given.runs, stopping, as_json=given.json, one=given.name != "all"))


async def _measure(names: list[str], runs: int | None, stopping: Stopping, *, as_json: bool, one: bool) -> int:
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        bench, usual = _BENCHES[name]
        result = await unless(stopping, bench(runs or usual))
        if result is None:
            return INTERRUPTED
        found[name] = result.as_dict()
        if not as_json:
            print(result.text(), flush=True)
    if as_json:
        print(json.dumps(found[names[0]] if one else found, ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

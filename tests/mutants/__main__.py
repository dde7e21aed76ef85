"""`python -m tests.mutants [NAME …]`: break a copy of the tree in each way and see the named test fail.

A mutant that survives is a rule that no test pins: exit 1. The tree itself is never touched.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.seeds import MUTANTS
from tests.support.tree import ROOT

_COPIED = ("pallas", "shard", "federate", "webui", "tests", "bench", "docs", "pyproject.toml", "compose.yaml")
_TIMEOUT_S = 180


def main() -> int:
    """Run all mutants, or those whose names contain one of the words given."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*", help="only mutants with one of these words in their name")
    words = parser.parse_args().words
    chosen = [one for one in MUTANTS if not words or any(word in one.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="pallas-mutants-") as name:
        tree = Path(name)
        for part in _COPIED:
            _copy(ROOT / part, tree / part)
        survivors = list(_survivors(chosen, tree))
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were caught")
    for one in survivors:
        print(f"  SURVIVED: {one.name} ({one.test})")
    return 1 if survivors else 0


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        shutil.copy2(source, target)


def _survivors(chosen: Iterable[Mutant], tree: Path) -> Iterable[Mutant]:
    for one in chosen:
        path = tree / one.file
        sound = path.read_text("utf-8")
        assert sound.count(one.old) == 1, f"{one.name}: the text to break stands {sound.count(one.old)} times"
        path.write_text(sound.replace(one.old, one.new), "utf-8")
        began = time.monotonic()
        code = _test(one.test, tree)
        path.write_text(sound, "utf-8")
        # 1: a test failed. Anything else, such as a test that is not found, catches nothing.
        caught = code == 1
        print(f"  {'caught ' if caught else 'MISSED '} {time.monotonic() - began:5.1f} s  {one.name}", flush=True)
        if not caught:
            yield one


def _test(test: str, tree: Path) -> int:
    options = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly")
    command = [sys.executable, "-m", "pytest", *options, test]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree), "HOME": str(tree)},
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

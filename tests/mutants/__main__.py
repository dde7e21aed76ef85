"""`python -m tests.mutants [NAME …]`: break a copy of the tree in each way and see the named test fail.

A mutant that survives is a rule that no test pins: exit 1. A test that fails without the break, or does not run,
catches nothing. The tree itself is never touched.
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

_COPIED = ("pallas", "shard", "federate", "webui", "tests", "bench", "docs", "deploy", "pyproject.toml", "compose.yaml")
_TIMEOUT_S = 180
_NEEDED = ("pytest", "pytest_asyncio", "pytest_timeout", "hypothesis")


def main() -> int:
    """Run all mutants, or those whose names contain one of the words given."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*", help="only mutants with one of these words in their name")
    words = parser.parse_args().words
    chosen = [one for one in MUTANTS if not words or any(word in one.name for word in words)]
    if not chosen:
        parser.error(f"no mutant has {' or '.join(words)} in its name; all are in tests/mutants/")
    with tempfile.TemporaryDirectory(prefix="pallas-mutants-") as name:
        tree = Path(name)
        missing = _missing(tree)
        if missing:
            print(f"{sys.executable} lacks {', '.join(missing)}, without which no test runs: use `make mutants`, or "
                  "`make ready-test` and then `.venv/bin/python -m tests.mutants`", file=sys.stderr)  # fmt: skip
            return 2
        for part in _COPIED:
            _copy(ROOT / part, tree / part)
        unsound = [test for test in sorted({one.test for one in chosen}) if not _passes(test, tree)]
        if unsound:
            print("these tests do not pass on the sound tree, so they can catch nothing:", *unsound, sep="\n  ")
            return 2
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
        caught = " failed" in _test(one.test, tree)
        path.write_text(sound, "utf-8")
        print(f"  {'caught ' if caught else 'MISSED '} {time.monotonic() - began:5.1f} s  {one.name}", flush=True)
        if not caught:
            yield one


def _passes(test: str, tree: Path) -> bool:
    said = _test(test, tree)
    return " passed" in said and " failed" not in said and " error" not in said


def _test(test: str, tree: Path) -> str:
    """The last line of the test's run; empty where it did not end in time."""
    options = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly")
    try:
        said = _python(tree, "-m", "pytest", *options, test)
    except subprocess.TimeoutExpired:
        return ""
    return said.rpartition("\n")[2]


def _missing(tree: Path) -> list[str]:
    """What the tests cannot be run without, as they find it: they do not see what this process was given."""
    look = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if not importlib.util.find_spec(name)])"
    return _python(tree, "-c", look, *_NEEDED).split()


def _python(tree: Path, *words: str) -> str:
    """What Python prints in the copy, with nothing of our environment."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree), "HOME": str(tree)},
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return done.stdout.decode(errors="replace").strip()


if __name__ == "__main__":
    sys.exit(main())

"""What may be told of an error in a bot's handler: its kind and its place, never its words.

An exception's text is often what a person wrote (`invalid literal for int(): '…'`), and a source line may hold a
token: neither must reach a log.
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_FRAMES = 12
_ROOT = Path(__file__).parents[1]
_OURS = tuple(_ROOT / package for package in ("pallas", "shard", "federate", "webui"))
_STANDARD = tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def describe(error: BaseException) -> dict[str, object]:
    """Log fields: `error` (its type), `where` (the innermost line of the author's code) and `frames`, outermost first.

    Of a group, the first error in it. Where no frame is the author's, `where` is in an installed package, else the
    innermost of all.
    """
    kind = type(error).__name__
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
        kind = f"{kind} of {type(error).__name__}"
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    at = "unknown"
    if frames:
        # The last of the nearest ones: min() keeps the first that it meets.
        file, line, name = min(reversed(frames), key=lambda frame: _distance(frame[0]))
        at = f"{file}:{line} in {name}"
    return {"error": kind, "where": at, "frames": [f"{file}:{line} {name}" for file, line, name in frames[-_FRAMES:]]}


def _distance(file: str) -> int:
    """How far from the author a file is: 0 their own, 1 a package that is installed, 2 ours or the language's."""
    path = Path(file)
    if file.startswith("<") or any(path.is_relative_to(folder) for folder in _OURS):
        return 2
    if not _INSTALLED.isdisjoint(path.parts):
        return 1
    return 2 if any(path.is_relative_to(folder) for folder in _STANDARD) else 0

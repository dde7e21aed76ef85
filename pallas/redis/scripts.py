"""The Lua scripts, called by the names in their headers.

A script file starts with `-- <promise>`, then `-- KEYS: name (TYPE), …`, `-- ARGV: name, …` and `-- Returns …`. The
loader turns those names into locals on the file's first line (so that error lines still fit), checks each call against
them, and computes the SHA once. Where both lines end in `…` the names are those of one row, and a call may hold several
rows: such a script walks KEYS and ARGV itself. NOSCRIPT proves that nothing ran, so the call is repeated with its
source.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from pallas.redis.batch import Command

_NAMES = re.compile(r"[a-z_]+")


class Script:
    """One script: its source, SHA and the names of its keys and arguments."""

    __slots__ = ("_head", "_length", "arguments", "keys", "name", "sha", "source")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.keys, many = _header(name, text, "KEYS")
        self.arguments, _ = _header(name, text, "ARGV")
        self.source = text if many else _locals(self.keys, "KEYS") + _locals(self.arguments, "ARGV") + text
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self._head: Command = ("EVALSHA", self.sha, len(self.keys))
        self._length = len(self.keys) + len(self.arguments)

    def __repr__(self) -> str:
        return f"Script({self.name})"

    def command(self, *values: bytes | str | int) -> Command:
        """The call with keys and arguments in the header's order. Raises TypeError on a wrong number."""
        if len(values) != self._length:
            raise TypeError(f"{self.name} takes {self._length} values, got {len(values)}")
        return self._head + values

    def rows(self, keys: Sequence[bytes | str | int], arguments: Sequence[bytes | str | int]) -> Command:
        """A call with several rows: their keys one after the other, and their arguments likewise."""
        rows, rest = divmod(len(keys), len(self.keys))
        if rest or len(arguments) != rows * len(self.arguments):
            raise TypeError(f"{self.name}: {len(keys)} keys and {len(arguments)} arguments are no rows")
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)

    def named(self, **values: bytes | str | int) -> Command:
        """The call by names. Raises TypeError where a name is missing or unknown."""
        names = self.keys + self.arguments
        if values.keys() != set(names):
            raise TypeError(f"{self.name} takes {', '.join(names)}; got {', '.join(values)}")
        return self._head + tuple(values[name] for name in names)

    def with_source(self, command: Command) -> Command:
        """The same call for a server that does not know the script."""
        return ("EVAL", self.source, *command[2:])


@cache
def script(name: str) -> Script:
    """The script `pallas/redis/lua/<name>.lua`."""
    return Script(name, (files("pallas.redis") / "lua" / f"{name}.lua").read_text("utf-8"))


def _header(name: str, text: str, word: str) -> tuple[tuple[str, ...], bool]:
    """The names of a header line, and whether they are those of one row of many."""
    line = re.search(rf"^-- {word}:(.*)$", text, re.MULTILINE)
    if line is None:
        raise ValueError(f"{name}.lua has no `-- {word}:` line")
    names = re.sub(r"\([A-Z]+\)", "", line.group(1))
    return tuple(_NAMES.findall(names)), names.rstrip().endswith("…")


def _locals(names: tuple[str, ...], table: str) -> str:
    return "".join(f"local {name} = {table}[{place}] " for place, name in enumerate(names, 1))

"""Every process that a command left behind, however it was started.

Parents are no help here: a child of a killed process belongs to init. Found by a mark in the environment, or by the
working folder where a program has written over its environment, as Valkey does for its title. Linux only, as /proc is.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_NAME = "FAMILY_OF_THE_TEST"


class Family:
    """The processes that inherited `environment`, or work below `folder`; what the block leaves behind is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.resolve())
        self.environment = {_NAME: secrets.token_hex(16)}
        self._mark = f"{_NAME}={self.environment[_NAME]}".encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def members(self) -> dict[int, str]:
        """What runs now: process id and command line. A zombie has ended."""
        return dict(self._look())

    def _look(self) -> Iterator[tuple[int, str]]:
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                # A zombie has neither.
                if self._mark in (folder / "environ").read_bytes().split(b"\0") or self._works_here(folder):
                    yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except (OSError, UnicodeDecodeError):
                continue

    def _works_here(self, process: Path) -> bool:
        return f"{(process / 'cwd').readlink()}/".startswith(f"{self._folder}/")

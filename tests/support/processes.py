"""Product processes as a person starts them: `python -m pallas.cli …` with an environment that holds nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.tree import ROOT
from tests.support.valkey import die_with_parent


class PallasProcess:
    """One running command; its output goes to `log` (both streams), and it dies with the test."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = folder / f"{name}.log"
        inherited = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pallas.cli", *arguments],
                cwd=folder,  # not the checkout: its .env and pallas.toml belong to whoever works there
                env={**inherited, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(),
            )

    def __repr__(self) -> str:
        return f"PallasProcess({self.name}, pid={self.pid}, exit={self.exit_code})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.exit_code is None:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative where a signal ended it."""
        return self._process.poll()

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self._process.send_signal(number)

    def wait(self, timeout: float = 30.0) -> int:
        """Its exit code, once it has ended. Raises subprocess.TimeoutExpired when it does not end in time."""
        return self._process.wait(timeout)

    def terminate(self, timeout: float = 30.0) -> int:
        """SIGTERM, then its exit code. Raises subprocess.TimeoutExpired when it does not end in time."""
        self.send(signal.SIGTERM)
        return self.wait(timeout)

    def output(self, characters: int = 4000) -> str:
        """The end of what it printed."""
        return self.log.read_text("utf-8", errors="replace")[-characters:]

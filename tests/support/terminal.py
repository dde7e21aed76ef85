"""A command in a terminal of its own, as a person has it: what it prints, and Ctrl-C as a key."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.tree import ROOT
from tests.support.waiting import block_until


class TerminalProcess:
    """`pallas ARGUMENTS` on a pseudo terminal; it ends with the block."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._screen, theirs = os.openpty()
        inherited = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        own = {"PYTHONPATH": str(ROOT), "TERM": "xterm", "LANG": "C.UTF-8"}
        self._text = b""
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pallas.cli", *arguments],
            cwd=folder,
            env={**inherited, **own, **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._screen)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        """Everything on the screen so far."""
        while select.select([self._screen], [], [], 0)[0]:
            try:
                read = os.read(self._screen, 65536)
            except OSError:  # Linux says EIO once the last process has left the terminal
                break
            if not read:
                break
            self._text += read
        return self._text.decode("utf-8", "replace").replace("\r\n", "\n")

    def wait_for(self, words: str, timeout: float = 20.0) -> float:
        """Wait until the words are on the screen; seconds since the start."""
        block_until(lambda: words in self._said(words), timeout, saying=f"the screen says {words!r}")
        return time.monotonic() - self.started

    def _said(self, words: str) -> str:
        text = self.text
        assert words in text or self._process.poll() is None, f"it ended with {self._process.poll()}:\n{text}"
        return text

    def press_ctrl_c(self) -> None:
        """The key, not the signal: the terminal sends it to the whole foreground group."""
        os.write(self._screen, b"\x03")

    def ended(self, timeout: float = 20.0) -> int:
        """Its exit code, once it has ended by itself."""
        # Its last words must be read, or it waits for ever to be rid of them.
        block_until(lambda: self.text is not None and self._process.poll() is not None, timeout, saying="it ends")
        return int(self._process.wait())

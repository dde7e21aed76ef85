"""Child processes that cannot outlive this one, also when it is killed with -9.

Every child of the product (the embedded server, hub and workers of `pallas up`) is started by `spawn`. It runs in a
session of its own, so that Ctrl-C reaches only the process that then stops its children in order. POSIX only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import structlog

_LAUNCHER = Path(__file__).with_name("launch.py")
_KILL_WAIT_S = 5.0

_log = structlog.get_logger()


class Child:
    """A running child; `wait` may be awaited by several at once."""

    __slots__ = ("_lifeline", "_process", "name")

    def __init__(self, name: str, process: asyncio.subprocess.Process, lifeline: IO[bytes]) -> None:
        self.name = name
        self._process = process
        self._lifeline = lifeline

    def __repr__(self) -> str:
        return f"Child({self.name!r}, pid={self.pid}, exit_code={self.exit_code})"

    @property
    def pid(self) -> int:
        """The command's own process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        return self._process.returncode

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """What the child writes, where `spawn` was given `stdout=PIPE`."""
        return self._process.stdout

    async def wait(self) -> int:
        """Wait for its end and return its exit code."""
        code = await self._process.wait()
        self._lifeline.close()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the child has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self, grace_s: float) -> int | None:
        """SIGTERM, and SIGKILL after `grace_s`. Returns the exit code, None if even SIGKILL did not end it in 5 s."""
        if self.exit_code is None:
            self.signal(signal.SIGTERM)
            try:
                return await asyncio.wait_for(self.wait(), grace_s)
            except TimeoutError:
                _log.warning("process.killed", process=self.name, pid=self.pid, after_s=grace_s)
            self.signal(signal.SIGKILL)
        try:
            return await asyncio.wait_for(self.wait(), _KILL_WAIT_S)
        except TimeoutError:
            _log.error("process.unkillable", process=self.name, pid=self.pid)
            return None


async def spawn(
    name: str,
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] = asyncio.subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
    death_signal: signal.Signals = signal.SIGTERM,
) -> Child:
    """Start `command`; whatever ends this process, the child is sent `death_signal`.

    A command that cannot be run ends with 127 and says why on its standard error; raises OSError only where not even
    an interpreter can be started. `pass_fds` are inherited under the same numbers. `name` is for logs.
    """
    # The kernel's signal follows the thread that forks, not its process: only the main thread lives long enough.
    method = "follow" if threading.current_thread() is threading.main_thread() else "watch"
    read_end, write_end = os.pipe()
    lifeline = os.fdopen(write_end, "wb", buffering=0)
    binding = [method, str(os.getpid()), str(int(death_signal)), str(read_end), ",".join(map(str, pass_fds))]
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_LAUNCHER), *binding, *command),
            cwd=cwd,
            # uvloop takes nothing but a dict.
            env=None if env is None else dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(*pass_fds, read_end),
            start_new_session=True,
        )
    except BaseException:
        lifeline.close()
        raise
    finally:
        os.close(read_end)
    return Child(name, process, lifeline)


def pid_alive(pid: int) -> bool:
    """Whether a process of this host has this id and has not ended; a zombie has ended.

    Ids are used again: it proves an end, not that the process is still the one you knew.
    """
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        # No /proc (macOS), or it ended between the two looks and the next caller will see that.
        return True
    return state not in {b"Z", b"X"}

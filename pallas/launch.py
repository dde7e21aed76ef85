"""Becomes another program that must not outlive the process which started it.

Run by path in a bare interpreter (`python -I -S launch.py METHOD PARENT SIGNAL LIFELINE INHERITED COMMAND…`, see
`pallas.procs`), so that nothing of ours runs between fork and exec of a process with threads. Standard library only.
Where the kernel can signal a child whose parent ended (Linux) that is used; elsewhere, and where the starting thread
may end before its process, a small watcher waits for the end of the lifeline, a pipe only the parent holds open.
"""

from __future__ import annotations

import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0
_CANNOT_RUN = 127
_PARENT_GONE = 126


def _follow_parent(number: int) -> bool:
    """Whether the kernel will send us signal `number` when the thread that started us ends; survives exec."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # noqa: PLC0415  (some builds lack it)

        return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _watch(lifeline: int, number: int, inherited: list[int]) -> None:
    """Fork a watcher that passes the parent's death on to this process as signal `number`."""
    program = os.getpid()
    if os.fork():
        return
    # The watcher must hold nothing of the program's: no lock, no output somebody waits to see closed.
    for fd in (0, 1, 2, *inherited):
        os.closerange(fd, fd + 1)
    ended = select.poll()
    ended.register(lifeline, select.POLLIN)
    while not ended.poll(_LOOK_S * 1000):
        if os.getppid() != program:
            os._exit(0)
    if os.getppid() == program:
        os.kill(program, number)
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Bind to the parent, then become the command; exits with 126 or 127 where that is impossible."""
    method, parent, number, lifeline, inherited, *command = arguments
    if method != "follow" or not _follow_parent(int(number)):
        _watch(int(lifeline), int(number), [int(fd) for fd in inherited.split(",") if fd])
    os.set_inheritable(int(lifeline), False)
    # The parent may have ended before the kernel was asked: then no signal will ever come.
    if os.getppid() != int(parent):
        sys.exit(_PARENT_GONE)
    # This interpreter ignores these two; a program expects their defaults.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606  (the caller's own command, no shell)
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        sys.exit(_CANNOT_RUN)


if __name__ == "__main__":
    main(sys.argv[1:])

"""How each of our processes runs: one loop, two signals, an exit code and errors a person can read.

SIGTERM and Ctrl-C ask for an orderly end; a second Ctrl-C does not wait for it, and only what must not be left behind
is still taken away.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from pallas.errors import PallasError, RedisRefused

T = TypeVar("T")
INTERRUPTED = 130
FAILED = 1


class Stopping(asyncio.Event):
    """Set once the process is asked to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.hurried: list[Callable[[], object]] = []
        """What a second Ctrl-C still does before the process ends at once, the last one first."""


def make_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop's where the extra `fast` is installed."""
    try:
        import uvloop  # noqa: PLC0415  (an extra)
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Callable[[Stopping], Coroutine[Any, Any, int]]) -> int:
    """Run `main` to its end and return its exit code; errors raised on purpose are printed, not traced."""
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            return runner.run(_with_signals(main))
    except RedisRefused as error:
        complain(f"{error}; correct it, `pallas doctor` checks it")
        return FAILED
    except PallasError as error:
        complain(str(error))
        return FAILED
    except OSError as error:
        # Where no file is concerned the words say it all; the number in front of them is for programs.
        complain(str(error) if error.filename or not error.strerror else error.strerror)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


async def _with_signals(main: Callable[[Stopping], Coroutine[Any, Any, int]]) -> int:
    stopping = Stopping()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        if stopping.is_set() and number is signal.SIGINT:
            try:
                for work in reversed(stopping.hurried):
                    work()
            finally:
                os._exit(INTERRUPTED)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    return await main(stopping)


async def unless(stopping: Stopping, work: Awaitable[T]) -> T | None:
    """The result of `work`, or None where the process is asked to stop first; `work` is then cancelled."""
    task = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, stop):
            each.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)


def say(text: str) -> None:
    """Print a command's answer, on standard output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Say what went wrong, on standard error."""
    sys.stderr.write(f"pallas: {text}\n")
    sys.stderr.flush()

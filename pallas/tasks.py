"""Background work that is joined on stop and whose errors are seen.

Every task of a process is started here: a task nobody holds may vanish, and its error with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from pallas.errors import PallasError
from pallas.failure import describe

_log = structlog.get_logger()


class Tasks:
    """The running tasks of one owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` until it ends or `stop()` is called; an error is logged under `name`."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            _log.error("task.failed", task=task.get_name(), **describe(error))

    async def stop(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        pending = list(self._running)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def every(
    seconds: float,
    work: Callable[[], Awaitable[object]],
    *,
    name: str,
    failed: Callable[[BaseException], None] | None = None,
) -> None:
    """Call `work` now and then every `seconds`, for ever; an error is logged and the loop goes on."""
    failing = False
    while True:
        try:
            await work()
            failing = False
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a loop that ends on an error it did not expect is the worse fault
            if failed is not None:
                failed(error)
            if not failing:
                # The words of a fault nobody expected may be a person's; those of our own errors are ours.
                detail = {"error": str(error)} if isinstance(error, PallasError) else describe(error)
                _log.warning("loop.failed", loop=name, **detail)
            failing = True
        await asyncio.sleep(seconds)

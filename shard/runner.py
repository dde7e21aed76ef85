"""Handlers run here: in a loop and a thread of their own, so that a handler that blocks stops no link and no lease.

The socket's loop hands invocations over in batches and gets the results back the same way. A handler has a time limit;
past it the run is cancelled, and what it still asks for is refused.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import structlog

from pallas.errors import AppError
from pallas.failure import describe
from pallas.metrics import Meters
from pallas.model import Reason

if TYPE_CHECKING:
    from pallas.context import EventContext
    from pallas.handler import Handler

_log = structlog.get_logger()
_GRACE_S = 1.0
_STUCK_S = 30.0
THREADS = 16
"""Plain `def` handlers that run at once; further ones wait for a thread within their time limit."""


Then = Callable[[Reason, Exception | None], None]
"""Who is told of the end of a run, once, on the sockets' loop: `ok` with what the handler raised or None,
`handler_timeout`, or `shutdown` where the worker did not wait for it."""


class Run:
    """One run of a handler."""

    __slots__ = ("context", "due", "handler", "task", "then")

    def __init__(self, handler: Handler, context: EventContext, due: float, then: Then) -> None:
        self.handler = handler
        self.context = context
        self.due = due
        self.then = then
        self.task: asyncio.Task[None] | None = None


class Runner:
    """The handler loop of a worker, started and stopped with it."""

    def __init__(self, meters: Meters, *, timeout_s: float, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._meters = meters
        self._timeout_s = timeout_s
        self._sockets = asyncio.get_running_loop()
        self._handlers = make_loop()
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="handler")
        self._thread = threading.Thread(target=self._serve, name="handlers", daemon=True)
        self._coming: deque[Run] = deque()
        self._going: deque[tuple[Run, Exception | asyncio.CancelledError | None]] = deque()
        self._told_handlers = False
        self._told_sockets = False
        self._stopping = False
        self._running: dict[Run, None] = {}
        self._asked = self._heard = 0.0
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which handlers run."""
        return self._handlers

    def __len__(self) -> int:
        return len(self._running)

    def start(self, handler: Handler, context: EventContext, then: Then) -> None:
        """Hand a handler over; `then` is told how it ended."""
        if self._stopping:
            then(Reason.SHUTDOWN, None)
            return
        run = Run(handler, context, time.monotonic() + (handler.timeout_s or self._timeout_s), then)
        self._running[run] = None
        self._coming.append(run)
        if not self._told_handlers:
            # One wake-up for all that this turn hands over: each is a system call and a change of threads.
            self._told_handlers = True
            self._sockets.call_soon(self._handlers.call_soon_threadsafe, self._take_up)

    def _cut_off(self, run: Run, reason: Reason) -> None:
        self._handlers.call_soon_threadsafe(lambda: run.task and run.task.cancel())
        # The handler may not yield for a while; the message's outcome does not wait for it.
        self._ended(run, reason, None)

    def _ended(self, run: Run, reason: Reason, error: Exception | None) -> None:
        if run not in self._running:
            # It was cut off before.
            return
        del self._running[run]
        try:
            run.then(reason, error)
        except Exception as fault:
            # A fault of ours in one caller must not cost the others their results.
            _log.error("run.failed", **describe(fault))

    def watch(self) -> None:
        """Cancel runs past their limit and measure how late the handler loop is; called about once a second."""
        if self._stopping:
            return
        now = time.monotonic()
        for run in list(self._running):
            if run.due <= now:
                self._cut_off(run, Reason.HANDLER_TIMEOUT)
        self._meters.running = len(self._running)
        if self._heard < self._asked:
            self._meters.handler_lag_s = now - self._asked
            return
        self._meters.handler_lag_s = self._heard - self._asked
        self._asked = now
        self._handlers.call_soon_threadsafe(self._hear)

    @property
    def is_stuck(self) -> bool:
        """Whether the handler loop has not come round for so long that this worker answers nobody."""
        return self._heard < self._asked and time.monotonic() - self._asked > _STUCK_S

    def _hear(self) -> None:
        self._heard = time.monotonic()

    # On the handlers' loop from here on.

    def _serve(self) -> None:
        asyncio.set_event_loop(self._handlers)
        self._handlers.set_exception_handler(_left_behind)
        while not self._stopping:
            detail: dict[str, object] = {}
            try:
                self._handlers.run_forever()
            except BaseException as raised:
                # `sys.exit()` in a task or callback of a handler's own comes through the loop.
                detail = describe(raised)
            if not self._stopping:
                _log.error(
                    "handlers.loop_stopped", hint="a handler stopped the event loop; it is started again", **detail
                )

    def _take_up(self) -> None:
        self._told_handlers = False
        while self._coming:
            run = self._coming.popleft()
            run.task = self._handlers.create_task(self._one(run))

    async def _one(self, run: Run) -> None:
        error: Exception | asyncio.CancelledError | None = None
        try:
            await run.handler.run(run.context, self._executor)
        except asyncio.CancelledError as cancelled:
            error = cancelled
        except Exception as raised:
            error = raised
        except GeneratorExit:
            raise
        except BaseException as raised:
            # Let through, it would end the loop of all handlers.
            error = AppError(f"{run.handler!r} raised {type(raised).__name__}; a handler ends by returning")
        self._going.append((run, error))
        if not self._told_sockets:
            self._told_sockets = True
            self._handlers.call_soon(self._sockets.call_soon_threadsafe, self._bring_back)

    def _wind_down(self) -> None:
        """Cancel whatever still runs here, also what handlers started, give it a moment to clean up, and stop."""
        left = asyncio.all_tasks(self._handlers)
        for task in left:
            task.cancel()
        self._handlers.call_later(_GRACE_S, self._handlers.stop)
        gathered = asyncio.gather(*left, return_exceptions=True)
        gathered.add_done_callback(lambda _: self._handlers.stop())

    # On the sockets' loop.

    def _bring_back(self) -> None:
        self._told_sockets = False
        while self._going:
            run, error = self._going.popleft()
            if isinstance(error, asyncio.CancelledError):
                # Nobody of ours asked for it: the handler was cancelled by something it started itself.
                error = AppError(f"{run.handler!r} was cancelled from within")
            self._ended(run, Reason.OK, error)

    async def stop(self) -> None:
        """Cancel what still runs and end the thread; a handler that does not yield is left behind with it."""
        self._stopping = True
        for run in list(self._running):
            self._cut_off(run, Reason.SHUTDOWN)
        self._handlers.call_soon_threadsafe(self._wind_down)
        await asyncio.to_thread(self._thread.join, 2.0)
        if self._thread.is_alive():
            _log.warning("handlers.left_behind", hint="a handler blocks its thread and did not end within 2 s")
        else:
            self._handlers.close()
        self._executor.shutdown(wait=False, cancel_futures=True)


def _left_behind(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a handler started and nobody awaited has failed: told without its words, which may be a person's."""
    error = context.get("exception")
    detail = describe(error) if isinstance(error, BaseException) else {"error": str(context.get("message"))}
    _log.error("handler.left_task_failed", **detail)

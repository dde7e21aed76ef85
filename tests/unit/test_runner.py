"""Handlers run apart from the sockets: whatever one does, its caller hears how it ended and the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest
import structlog

from pallas.app import App
from pallas.context import EventContext
from pallas.errors import AppError
from pallas.handler import Handler
from pallas.metrics import Meters
from pallas.model import Reason
from shard.runner import THREADS, Runner
from tests.support.waiting import wait_until

NO_CONTEXT = cast("EventContext", None)


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def handler(func: Callable[[Any], Any], timeout_s: float | None = None) -> Handler:
    """The declaration of a function."""
    app = App("runner-test")
    app.command("go", timeout_s=timeout_s)(func)
    return app.handlers[0]


@contextlib.asynccontextmanager
async def running(timeout_s: float = 5.0) -> AsyncIterator[Runner]:
    """A runner that is watched as a worker does it, only more often."""
    runner = Runner(Meters(), timeout_s=timeout_s, make_loop=asyncio.new_event_loop)
    stopped = asyncio.Event()

    async def watch() -> None:
        while not stopped.is_set():
            runner.watch()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), 0.02)

    watching = asyncio.create_task(watch())
    try:
        yield runner
    finally:
        stopped.set()
        await watching
        await runner.stop()


async def run(runner: Runner, handler: Handler) -> Reason:
    """Run a handler to its end and raise what it raised."""
    ended: asyncio.Future[Reason] = asyncio.get_running_loop().create_future()

    def then(reason: Reason, error: Exception | None) -> None:
        # A second call would raise here.
        if error is None:
            ended.set_result(reason)
        else:
            ended.set_exception(error)

    runner.start(handler, NO_CONTEXT, then)
    return await ended


@pytest.mark.parametrize("way", ["task", "callback"])
async def test_what_a_handler_started_may_exit_and_the_others_go_on(way: str, lines: list[Any]) -> None:
    started: list[Any] = []

    async def leave() -> None:
        raise SystemExit(3)

    async def go(_: Any) -> None:
        if way == "task":
            started.append(asyncio.create_task(leave()))
        else:
            asyncio.get_running_loop().call_soon(sys.exit, 3)

    async def fine(_: Any) -> None:
        await asyncio.sleep(0)

    async with running() as runner:
        assert await run(runner, handler(go)) is Reason.OK
        await wait_until(lambda: any(line["event"] == "handlers.loop_stopped" for line in lines))
        assert await run(runner, handler(fine)) is Reason.OK


async def test_a_handler_runs_on_its_own_loop_and_thread() -> None:
    async def where(_: Any) -> None:
        seen.append((asyncio.get_running_loop(), threading.current_thread().name))

    seen: list[tuple[asyncio.AbstractEventLoop, str]] = []
    async with running() as runner:
        assert await run(runner, handler(where)) is Reason.OK
        assert seen == [(runner.loop, "handlers")]
        assert runner.loop is not asyncio.get_running_loop()
        assert len(runner) == 0


async def test_many_runs_at_once_all_end() -> None:
    async def quick(_: Any) -> None:
        await asyncio.sleep(0)

    async with running() as runner:
        ends = await asyncio.gather(*(run(runner, handler(quick)) for _ in range(500)))
        assert set(ends) == {Reason.OK}


async def test_an_error_is_the_callers() -> None:
    async def wrong(_: Any) -> None:
        raise LookupError("mine")

    async with running() as runner:
        with pytest.raises(LookupError, match="mine"):
            await run(runner, handler(wrong))


async def test_who_fails_to_hear_of_an_end_keeps_nobody_else_from_it(lines: list[Any]) -> None:
    def deaf(*_: object) -> None:
        raise LookupError("the words of a person")

    async def right(_: Any) -> None:
        pass

    async with running() as runner:
        runner.start(handler(right), NO_CONTEXT, deaf)
        assert await run(runner, handler(right)) is Reason.OK
        assert len(runner) == 0
    assert [line["event"] for line in lines] == ["run.failed"]
    assert "person" not in str(lines)


async def test_what_is_handed_over_after_the_stop_is_told_so_at_once() -> None:
    async def right(_: Any) -> None:
        pass

    async with running() as runner:
        pass
    assert await run(runner, handler(right)) is Reason.SHUTDOWN


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, BaseExceptionGroup])
@pytest.mark.parametrize("is_async", [True, False])
async def test_nothing_that_a_handler_raises_ends_more_than_its_run(error: Any, *, is_async: bool) -> None:
    raised = error("x", [KeyboardInterrupt()]) if error is BaseExceptionGroup else error()

    async def wrong(_: Any) -> None:
        raise raised

    def wrong_too(_: Any) -> None:
        raise raised

    async def right(_: Any) -> None:
        pass

    async with running() as runner:
        with pytest.raises(AppError):
            await run(runner, handler(wrong if is_async else wrong_too))
        assert await run(runner, handler(right)) is Reason.OK


@pytest.mark.parametrize("own_limit", [True, False])
async def test_a_run_past_its_limit_is_cancelled(*, own_limit: bool) -> None:
    ended = threading.Event()

    async def long(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with running(30.0 if own_limit else 0.05) as runner:
        assert await run(runner, handler(long, 0.05 if own_limit else None)) is Reason.HANDLER_TIMEOUT
        await wait_until(ended.is_set)
        assert len(runner) == 0


async def test_the_outcome_does_not_wait_for_a_handler_that_swallows_its_cancellation() -> None:
    let_go = threading.Event()
    swallowed = threading.Event()

    async def stubborn(_: Any) -> None:
        while not let_go.is_set():
            try:
                await asyncio.to_thread(let_go.wait, 5)
            except asyncio.CancelledError:
                swallowed.set()

    async def right(_: Any) -> None:
        pass

    async with running() as runner:
        assert await run(runner, handler(stubborn, 0.05)) is Reason.HANDLER_TIMEOUT
        await wait_until(swallowed.is_set)
        assert await run(runner, handler(right)) is Reason.OK
        let_go.set()


async def test_the_outcome_does_not_wait_for_a_handler_that_blocks_its_loop() -> None:
    let_go = threading.Event()

    async def block(_: Any) -> None:
        let_go.wait(10)

    async with running() as runner:
        assert await run(runner, handler(block, 0.05)) is Reason.HANDLER_TIMEOUT
        assert not let_go.is_set()
        let_go.set()


async def test_plain_functions_run_side_by_side_and_further_ones_wait_within_their_limit() -> None:
    together = threading.Barrier(THREADS + 1)
    let_go = threading.Event()

    def block(_: Any) -> None:
        together.wait(5)
        let_go.wait(5)

    def late(_: Any) -> None:
        ran.append(1)

    ran: list[int] = []
    async with running() as runner:
        busy = [asyncio.create_task(run(runner, handler(block))) for _ in range(THREADS)]
        await asyncio.to_thread(together.wait, 5)
        assert await run(runner, handler(late, 0.05)) is Reason.HANDLER_TIMEOUT
        let_go.set()
        assert await asyncio.gather(*busy) == [Reason.OK] * THREADS
        assert await run(runner, handler(late)) is Reason.OK


async def test_stopping_lets_handlers_and_what_they_started_clean_up(lines: list[Any]) -> None:
    began = threading.Event()
    cleaned: list[str] = []
    kept: list[asyncio.Task[None]] = []

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("background")

    async def long(_: Any) -> None:
        kept.append(asyncio.create_task(background()))
        await asyncio.sleep(0)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("handler")

    async with running() as runner:
        caller = asyncio.create_task(run(runner, handler(long)))
        await wait_until(began.is_set)
    assert sorted(cleaned) == ["background", "handler"]
    assert await caller is Reason.SHUTDOWN
    assert lines == []


async def test_stopping_does_not_wait_for_ever_for_a_handler_that_will_not_end() -> None:
    let_go = threading.Event()

    async def stubborn(_: Any) -> None:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.to_thread(let_go.wait, 5)

    began = asyncio.get_running_loop().time()
    async with running() as runner:
        caller = asyncio.create_task(run(runner, handler(stubborn)))
        await wait_until(lambda: len(runner) == 1)
        handlers = runner
    let_go.set()
    assert await caller is Reason.SHUTDOWN
    assert asyncio.get_running_loop().time() - began < 4
    await wait_until(lambda: not handlers._thread.is_alive())


async def test_a_handler_that_stops_the_loop_stops_no_other_handler() -> None:
    async def stop(_: Any) -> None:
        asyncio.get_running_loop().stop()

    async def go(_: Any) -> None:
        pass

    async with running() as runner:
        assert await run(runner, handler(stop)) is Reason.OK
        assert await run(runner, handler(go)) is Reason.OK

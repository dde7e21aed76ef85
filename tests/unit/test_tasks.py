"""Background work: joined on stop, its errors seen, its loops without end."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from pallas.errors import RedisUnavailable
from pallas.tasks import Tasks, every
from tests.support.waiting import wait_until


async def test_stop_waits_until_everything_has_ended() -> None:
    tasks, ended = Tasks(), []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    for number in range(3):
        tasks.start(work(number), "work")
    await asyncio.sleep(0)
    await tasks.stop()
    assert sorted(ended) == [0, 1, 2]
    assert len(tasks) == 0


async def test_an_error_is_logged_under_the_name_of_its_task() -> None:
    async def work() -> None:
        raise KeyError("x")

    tasks = Tasks()
    with capture_logs() as logs:
        await asyncio.wait([tasks.start(work(), "work.name")])
        await wait_until(lambda: logs)
    assert [(line["event"], line["task"], line["error"]) for line in logs] == [("task.failed", "work.name", "KeyError")]


async def test_a_cancelled_task_is_no_error() -> None:
    tasks = Tasks()
    with capture_logs() as logs:
        tasks.start(asyncio.Event().wait(), "work")
        await asyncio.sleep(0)
        await tasks.stop()
    assert not logs


async def test_a_loop_outlives_errors_and_logs_the_first_of_each_row() -> None:
    tasks, calls = Tasks(), 0
    failures: list[BaseException] = []

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls in {1, 2, 3, 5}:
            raise RedisUnavailable("away")

    with capture_logs() as logs:
        tasks.start(every(0.001, work, name="beat", failed=failures.append), "beat")
        await wait_until(lambda: calls >= 7)
        await tasks.stop()
    assert [line["event"] for line in logs] == ["loop.failed"] * 2
    assert len(failures) == 4
    assert "exc_info" not in logs[0], "that Redis is away is no fault of the loop: no traceback"


async def test_an_unexpected_error_of_a_loop_is_told_by_kind_and_place_and_not_in_its_words() -> None:
    tasks, calls = Tasks(), 0

    async def work() -> None:
        nonlocal calls
        calls += 1
        raise KeyError("what a person wrote")

    with capture_logs() as logs:
        tasks.start(every(0.001, work, name="beat"), "beat")
        await wait_until(lambda: calls >= 2)
        await tasks.stop()
    assert (logs[0]["error"], logs[0]["loop"]) == ("KeyError", "beat")
    assert "test_tasks.py" in str(logs[0]["where"])
    assert "person" not in str(logs)

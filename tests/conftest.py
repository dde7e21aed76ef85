"""What holds for every test: a clean environment, no leaked task, no key that lives for ever."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from pallas.keys import NO_TTL
from tests.support import row_table, topology_table
from tests.support.judge import Figures
from tests.support.valkey import ValkeyProcess

_TASK_GRACE_S = 0.5


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person who runs the tests reaches the product or its child processes."""
    for name in list(os.environ):
        if name.startswith("PALLAS_") and name != "PALLAS_TEST_BROWSER":
            monkeypatch.delenv(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        row_table.name_row(item)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each test that pins a row of the fault matrix, with what it measured, and for each topology."""
    kept = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    lines = row_table.table(report for report in kept if getattr(report, "when", "") == "call")
    if lines:
        terminalreporter.section("fault matrix")
        for line in lines:
            terminalreporter.write_line(line)
    for line in topology_table.lines(terminalreporter.stats):
        terminalreporter.write_line(line)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> row_table.Record:
    """Keeps a test's figures for its line of the fault matrix."""

    def keep(fault: str, figures: Figures) -> None:
        row_table.note(request, **figures.as_row(fault))

    return keep


@pytest.fixture(autouse=True)
def no_task_leaks(request: pytest.FixtureRequest) -> None:
    """After an async test and its fixtures no task may be left that nobody joined."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("joined_tasks")


@pytest.fixture
async def joined_tasks() -> AsyncIterator[None]:
    """Set up before a test's own fixtures, so it looks after they have cleaned up."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        # Closed connections and finished servers need a few turns of the loop to end their own tasks.
        _, left = await asyncio.wait(left, timeout=_TASK_GRACE_S)
    names = sorted(f"{task.get_name()} ({task.get_coro()!r})" for task in left)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_TASK_GRACE_S)
        pytest.fail("the test left tasks running that nobody joined:\n  " + "\n  ".join(names))


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyProcess]:
    """One real server per test process, shared by its tests through `redis_url`."""
    with ValkeyProcess() as server:
        yield server


@pytest.fixture
def redis_url(valkey: ValkeyProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty server. Afterwards each key must have a TTL or a name of `pallas.keys.NO_TTL`.

    A test that writes keys of its own on purpose is marked `leaves_keys`.
    """
    valkey.flush()
    yield valkey.url
    if request.node.get_closest_marker("leaves_keys"):
        return
    immortal = valkey.immortal_keys(NO_TTL)
    if immortal:
        pytest.fail("these keys have no TTL and are not in pallas.keys.NO_TTL:\n  " + "\n  ".join(immortal))


@pytest.fixture
def new_valkey() -> Iterator[Callable[..., ValkeyProcess]]:
    """Starts further servers, for tests that pause or kill theirs; all end with the test."""
    started: list[ValkeyProcess] = []

    def start(*options: str) -> ValkeyProcess:
        server = ValkeyProcess(*options)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.close()

"""Waiting for something to become true, instead of sleeping for a while and hoping.

The only place in the tests that sleeps.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

T = TypeVar("T")

_INTERVAL_S = 0.01


class StillFalseError(AssertionError):
    """The condition did not become true in time."""


@overload
async def wait_until(
    predicate: Callable[[], Coroutine[Any, Any, T]], timeout: float = 5.0, *, saying: str = ""
) -> T: ...
@overload
async def wait_until(predicate: Callable[[], T], timeout: float = 5.0, *, saying: str = "") -> T: ...
async def wait_until(predicate: Callable[[], Any], timeout: float = 5.0, *, saying: str = "") -> Any:
    """The first true value of `predicate`, which may be async; it is asked every 10 ms for `timeout` seconds.

    Raises StillFalseError, with `saying` (or the predicate's name) and the last value, when time is up.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise StillFalseError(_late(predicate, timeout, saying, value))
        await asyncio.sleep(_INTERVAL_S)


def block_until(predicate: Callable[[], T], timeout: float = 5.0, *, saying: str = "") -> T:
    """`wait_until` for code that runs outside an event loop."""
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise StillFalseError(_late(predicate, timeout, saying, value))
        time.sleep(_INTERVAL_S)


def _late(predicate: object, timeout: float, saying: str, value: object) -> str:
    what = saying or getattr(predicate, "__qualname__", repr(predicate))
    return f"still not true after {timeout:g} s: {what} (last value: {value!r})"

"""What `pallas status`, `bots`, `books` and `dead list` do: look, and print for a person or a program.

A deployment that cannot be read is an answer too: what is known without Redis is printed, with what to do, and the
exit code is 1.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pallas.clock import Clock
from pallas.errors import PallasError, RedisError, ReplyUnknown
from pallas.redact import redact_text
from shard.blind_view import BlindView
from shard.facts import books_json, bots_json, counts_json, dead_json, shards_json
from shard.health import processes
from shard.screens import Screen, Seen
from shard.table import Ink
from shard.view import Books, ClusterView
from shard.words import terminal_words

T = TypeVar("T")

ONEBOT_PATH = "/onebot/v11/ws"
_READINGS = 4
_PAUSE_S = 0.5
_FAILED = 1


async def show(
    what: str,
    view: ClusterView,
    data_dir: Path,
    clock: Clock,
    *,
    as_json: bool,
    locale: str = "",
    plain: bool = False,
    onebot_path: str = ONEBOT_PATH,
    stream: TextIO | None = None,
    pause_s: float = _PAUSE_S,
) -> int:
    """Print `status`, `bots`, `books` or `dead` and return the exit code.

    `locale` is such as `zh_CN.UTF-8`; `plain` keeps colours away from a terminal too. 1 where the deployment cannot be
    read, or where `books` finds that they do not balance and still do not after `pause_s` three times.
    """
    stream = sys.stdout if stream is None else stream
    seen = Seen(as_of=clock.wall_s(), folder=data_dir, onebot_path=onebot_path)
    problem: PallasError | None = None
    if what == "status":
        seen = replace(seen, processes=await processes(data_dir))
    try:
        seen = replace(await _looked(what, view, seen, pause_s), as_of=clock.wall_s())
    except PallasError as error:
        problem = error
        seen = replace(seen, blind=redact_text(str(error)), nothing=isinstance(view, BlindView))
    if as_json:
        write(stream, json.dumps(_json(what, seen, problem), ensure_ascii=False))
    else:
        screen = Screen(terminal_words(locale), Ink(colour=stream.isatty() and not plain))
        drawn = {"status": screen.status, "bots": screen.bots, "books": screen.books, "dead": screen.dead}[what]
        write(stream, "\n".join(drawn(seen)))
    unbalanced = what == "books" and seen.books is not None and not seen.books.balanced
    return _FAILED if problem is not None or unbalanced else 0


def write(stream: TextIO, text: str) -> None:
    """Print `text`; what the terminal's encoding lacks becomes an escape, not an error."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()


async def _looked(what: str, view: ClusterView, seen: Seen, pause_s: float) -> Seen:
    if what == "dead":
        return replace(seen, dead=await _patiently(view.dead, pause_s))
    if what == "books":
        books = await _settled_books(view, pause_s)
        return replace(seen, books=books, dead=await _patiently(view.dead, pause_s))
    seen = replace(seen, bots=await _patiently(view.bots, pause_s), shards=await _patiently(view.shards, pause_s))
    if what == "bots":
        return seen
    return replace(seen, books=await _settled_books(view, pause_s), dead=await _patiently(view.dead, pause_s))


async def _settled_books(view: ClusterView, pause_s: float) -> Books:
    """The books once they balance; a message may stand between two readings, so an imbalance is read again."""
    for _ in range(_READINGS - 1):
        books = await _patiently(view.books, pause_s)
        if books.balanced:
            return books
        await asyncio.sleep(pause_s)
    return await _patiently(view.books, pause_s)


async def _patiently(read: Callable[[], Awaitable[T]], pause_s: float) -> T:
    """One late reply says nothing about the next, and reading twice harms nothing."""
    try:
        return await read()
    except ReplyUnknown:
        await asyncio.sleep(pause_s)
    return await read()


def _json(what: str, seen: Seen, problem: PallasError | None) -> dict[str, Any]:
    found: dict[str, Any] = {"as_of": seen.as_of}
    if what == "status":
        found |= {"data_dir": str(seen.folder), "processes": [each.as_dict() for each in seen.processes]}
    if problem is not None:
        code = "redis_unavailable" if isinstance(problem, RedisError) else "hub_unavailable"
        hint = "`pallas doctor` tells what is wrong and what to do."
        return found | {"error": {"code": code, "message": seen.blind, "hint": hint}}
    match what:
        case "status":
            if seen.bots is not None:
                found["counts"] = counts_json(seen.bots)
            if seen.shards is not None:
                found |= shards_json(seen.shards, seen.onebot_path)
            if seen.books is not None:
                found["books"] = books_json(seen.books, seen.dead or ())
        case "bots":
            found |= bots_json(seen.bots or ())
        case "dead":
            found |= dead_json(seen.dead or ())
        case _ if seen.books is not None:
            found |= books_json(seen.books, seen.dead or ())
    return found

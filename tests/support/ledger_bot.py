"""The bots of the fault tests: each run of a handler is known from outside, also when its process is killed.

A worker gets one as `--app tests.support.ledger_bot:NAME`. A run's start and end are lines of the process's own file in
the folder `RUN_DIARY`, written in one piece each; `tests.support.runs` reads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

from pallas import App
from pallas.clock import SystemClock
from pallas.context import Context
from tests.support.proxy import lag

FOLDER, PAUSE = "RUN_DIARY", "RUN_PAUSE_S"
Handler = Callable[[Context], Coroutine[Any, Any, None]]


class Diary:
    """This process's runs."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._file: int | None = None
        self._opening = threading.Lock()

    def write(self, phase: str, ctx: Context, error: str = "") -> None:
        """Note that a run began, was done or failed; on disk as far as a killed process is concerned."""
        line = {
            "phase": phase,
            "nonce": ctx.args,
            "group": ctx.group_id,
            "bot": ctx.bot_id,
            "pid": os.getpid(),
            "at": self._clock.mono(),
            "error": error,
        }
        os.write(self._opened(), json.dumps(line).encode() + b"\n")

    def _opened(self) -> int:
        with self._opening:
            if self._file is None:
                path = Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"
                self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            return self._file


_diary = Diary()


def pause_s() -> float:
    """How long the slow ones take."""
    return float(os.environ.get(PAUSE, "0.5"))


def bot(name: str, answer: Handler) -> App:
    """A bot that answers `ping X` by `answer` and notes each run."""
    app = App(name)

    @app.command("ping", where="group", marks=())
    @wraps(answer)
    async def noted(ctx: Context) -> None:
        _diary.write("began", ctx)
        try:
            await answer(ctx)
        except BaseException as error:
            _diary.write("failed", ctx, type(error).__name__)
            raise
        _diary.write("done", ctx)

    return app


async def _at_once(ctx: Context) -> None:
    await ctx.reply(f"pong {ctx.args}")


async def _slowly(ctx: Context) -> None:
    await lag(pause_s())
    await ctx.reply(f"pong {ctx.args}")


async def _then_idle(ctx: Context) -> None:
    await ctx.reply(f"pong {ctx.args}")
    await lag(pause_s())


async def _in_two_parts(ctx: Context) -> None:
    await ctx.reply(f"pong {ctx.args}")
    await lag(pause_s())
    with contextlib.suppress(asyncio.CancelledError):
        await ctx.reply(f"more {ctx.args}")


async def _deaf(ctx: Context) -> None:
    # Holds the handlers' loop, as a plugin that computes or waits without giving way.
    threading.Event().wait(pause_s())
    await ctx.reply(f"pong {ctx.args}")


quick = bot("quick", _at_once)
slow = bot("slow", _slowly)
idle = bot("idle", _then_idle)
twice = bot("twice", _in_two_parts)
deaf = bot("deaf", _deaf)

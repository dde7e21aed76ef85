"""The server behind `embedded://`: a real Valkey process that this process owns.

Promises: one server per data folder, durable to a second, reachable by this user only, answering when `start` returns,
and gone soon after its owner however that one ended. It adopts no server that it did not start.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import structlog

from pallas.errors import EmbeddedServerError
from pallas.procs import Child, spawn
from pallas.redis.aof import cut_damaged_tail
from pallas.redis.server_folder import ServerFolder, find_endpoint
from pallas.redis.url import RedisKind, RedisTarget
from pallas.redis.valkey import ELSEWHERE, SOCKET_NAME, State, binary_path, config_text, state_of
from pallas.tasks import Tasks

__all__ = ["EmbeddedServer", "find_endpoint"]

_MAX_SOCKET_PATH = 107 if sys.platform == "linux" else 103
_PORT_TRIES = 10
_POLL_S = 0.01
_LOADING_NOTICE_S = 5.0
_LOG_PREFIX = re.compile(r"^\d+:[A-Z] .{20,24} [.\-*#] ")
_ADDRESS_REFUSED = ("Failed opening Unix socket", "Failed listening on port", "Address already in use")

_log = structlog.get_logger()


class EmbeddedServer:
    """One Valkey on one data folder; `async with` or `start` and `stop`.

    `settings` are further lines of valkey.conf. `takeover_s` is how long the server of an owner that was killed may
    take to stop, `start_s` how long a fresh one may be silent, `load_s` how long it may read its file.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        takeover_s: float = 10.0,
        start_s: float = 20.0,
        load_s: float = 600.0,
        stop_s: float = 10.0,
    ) -> None:
        self._folder = ServerFolder(data_dir)
        self._settings = settings
        self._takeover_s = takeover_s
        self._start_s = start_s
        self._load_s = load_s
        self._stop_s = stop_s
        self._tasks = Tasks()
        self._child: Child | None = None
        self._target: RedisTarget | None = None
        self._closed = asyncio.Event()
        self._stopping = False

    def __repr__(self) -> str:
        return f"EmbeddedServer({str(self._folder)!r}, pid={self.pid})"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process id; None while none runs."""
        return self._child.pid if self._child is not None and self._child.exit_code is None else None

    @property
    def target(self) -> RedisTarget:
        """Where it is reached; stays the same when it is started again. Raises EmbeddedServerError before that."""
        if self._target is None:
            raise EmbeddedServerError(f"the embedded server of {self._folder} was not started")
        return self._target

    @property
    def url(self) -> str:
        """`target` as a URL with its password: for clients, never for logs."""
        return self.target.url_with_secrets()

    async def start(self) -> str:
        """Start it and return its URL once it answers and has read its file. Call it on the main thread.

        Waits for the server of an owner that was killed. After an unexpected end (`wait_closed`) it may be called
        again. Raises EmbeddedServerError: no binary for this platform, folder in use or unusable, damaged file.
        """
        if self.pid is not None:
            return self.url
        began = time.monotonic()
        binary = binary_path()
        await self._folder.lock(self._takeover_s)
        try:
            self._folder.withdraw()
            target, child = await self._run(binary, self._folder.password())
            self._target, self._child = target, child
            self._folder.publish(self.url, child.pid)
        except BaseException as error:
            await self.stop()
            if isinstance(error, OSError):
                raise self._folder.unusable(error) from error
            raise
        self._closed.clear()
        self._stopping = False
        self._tasks.start(self._observe(child), "redis.embedded")
        _log.info("redis.started", pid=child.pid, target=str(target), seconds=round(time.monotonic() - began, 3))
        return self.url

    async def stop(self) -> None:
        """Stop it, its data on disk; SIGKILL if it takes too long. Does nothing where none runs."""
        self._stopping = True
        if self._folder.is_owned:
            self._folder.withdraw()
        child = self._child
        ended = child is None or await child.stop(self._stop_s) is not None
        if ended:
            self._folder.unlock()
        else:
            self._folder.disown()
        if child is not None:
            self._child = None
            _log.info("redis.stopped", pid=child.pid, exit_code=child.exit_code)
        await self._tasks.stop()

    async def wait_closed(self) -> int | None:
        """Wait until the server has ended, by `stop` or by itself; its exit code, None if it is not known.

        What to do about an end nobody asked for is the owner's decision: `start` again, or end too.
        """
        child = self._child
        if child is None:
            raise EmbeddedServerError(f"the embedded server of {self._folder} was not started")
        await self._closed.wait()
        return child.exit_code

    async def keep(self) -> None:
        """Start it again on the same data whenever it ends by itself; returns after `stop`.

        Raises EmbeddedServerError where it cannot be started again.
        """
        while True:
            await self.wait_closed()
            if self._stopping:
                return
            _log.error("redis.restarting", folder=str(self._folder))
            await self.start()

    async def _observe(self, child: Child) -> None:
        try:
            code = await child.wait()
            if not self._stopping:
                self._folder.withdraw()
                _log.error("redis.died", pid=child.pid, exit_code=code, log=f"{self._folder}/valkey.log")
        finally:
            self._closed.set()

    async def _run(self, binary: Path, password: str) -> tuple[RedisTarget, Child]:
        """Start the server at the first address it can have."""
        refused = ""
        for target in self._addresses(password):
            while True:
                with self._folder.open_log() as log:
                    offset = log.seek(0, os.SEEK_END)
                    self._folder.write("valkey.conf", config_text(target, self._settings))
                    child = await spawn(
                        "valkey",
                        [str(binary), "valkey.conf"],
                        cwd=self._folder.path,
                        stdout=log,
                        stderr=log,
                        pass_fds=(self._folder.server_lock,),
                    )
                # Known from here on, so that `stop` ends it whatever happens next.
                self._child = child
                self._folder.note_server(child.pid)
                if await self._answers(child, target):
                    return target, child
                said = self._folder.log_since(offset)
                if "Bad file format" not in said or not self._repaired():
                    break
            if not any(words in said for words in _ADDRESS_REFUSED):
                raise self._failed(said, child.exit_code)
            refused = said
        raise self._failed(refused, None)

    def _addresses(self, password: str) -> Iterator[RedisTarget]:
        """Where to listen, in order of preference; a server that is started again keeps its clients' address."""
        if self._target is not None:
            yield self._target
        path = self._folder.path / SOCKET_NAME
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
            yield RedisTarget(RedisKind.UNIX, unix_path=str(path), password=password)
        for _ in range(_PORT_TRIES):
            yield RedisTarget(RedisKind.SINGLE, hosts=(("127.0.0.1", _free_port()),), password=password)

    async def _answers(self, child: Child, target: RedisTarget) -> bool:
        """True once this very process serves; False when it ended. Raises EmbeddedServerError when time is up."""
        began = noticed = time.monotonic()
        limit_s = self._start_s
        while child.exit_code is None:
            state = await state_of(target, child.pid)
            if state is State.READY:
                return True
            now = time.monotonic()
            if state is State.LOADING:
                limit_s = self._load_s
                if now - noticed >= _LOADING_NOTICE_S:
                    noticed = now
                    _log.info("redis.loading", pid=child.pid, seconds=round(now - began))
            if now - began > limit_s:
                raise EmbeddedServerError(
                    f"the embedded server (process {child.pid}) did not answer within {limit_s:g} s; "
                    f"look into {self._folder}/valkey.log"
                )
            await asyncio.sleep(_POLL_S)
        await child.wait()
        return False

    def _repaired(self) -> bool:
        cut = cut_damaged_tail(self._folder.path / "appendonlydir")
        if cut:
            _log.warning("redis.tail_cut", folder=str(self._folder), bytes=cut)
        return bool(cut)

    def _failed(self, said: str, exit_code: int | None) -> EmbeddedServerError:
        lines = [_LOG_PREFIX.sub("", line.strip()) for line in said.splitlines() if line.strip()]
        last = lines[-1][:300] if lines else "nothing"
        if "Bad file format" in said:
            advice = (
                f"its file is damaged in the middle. Restore {self._folder}/appendonlydir from a copy, or move it away "
                "to start empty: decided messages are forgotten then, and may be answered again"
            )
        elif "No space left" in said:
            advice = f"the disk is full: free space for {self._folder}"
        elif exit_code in {126, 127}:
            advice = f"the binary does not run on this system: {ELSEWHERE}"
        else:
            advice = f"look into {self._folder}/valkey.log"
        ended = "found no address to listen on" if exit_code is None else f"ended with {exit_code} while starting"
        return EmbeddedServerError(f"the embedded server {ended} (it said: {last}); {advice}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

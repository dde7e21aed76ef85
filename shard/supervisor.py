"""One machine's deployment as processes: the embedded server, a hub and workers, started again when they end.

A process that ends at once is started again later and later, so that a fault in it does not take the machine; one that
refuses its settings stops everything, because starting it again cannot help. None outlives this process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from pallas.errors import EmbeddedServerError, PallasError
from pallas.process import FAILED
from pallas.procs import Child, spawn
from pallas.tasks import Tasks

if TYPE_CHECKING:
    from pallas.clock import Clock
    from pallas.redis import EmbeddedServer

_log = structlog.get_logger()
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_STABLE_S = 30.0
_SETTLED_S = 10.0
"""A process that ends with FAILED sooner than this after its very first start has said what is wrong with it."""


@dataclass(slots=True, frozen=True)
class Program:
    """A process to keep running: its name and the arguments of `pallas`; `hint` says what its end means."""

    name: str
    arguments: tuple[str, ...]
    hint: str


class Supervisor:
    """Keeps programs running, in `folder` with `environ`, and the embedded server where there is one.

    Start it on the main thread: the processes end with the thread that started them.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        clock: Clock,
        *,
        server: EmbeddedServer | None,
        environ: Mapping[str, str],
        folder: Path,
        grace_s: float,
    ) -> None:
        self._programs = programs
        self._environ = environ
        self._folder = folder
        self._clock = clock
        self._server = server
        self._grace_s = grace_s
        self._tasks = Tasks()
        self._children: dict[str, Child] = {}
        self._stopping = False
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of what runs now."""
        pids = {name: child.pid for name, child in self._children.items() if child.exit_code is None}
        if self._server is not None and self._server.pid is not None:
            pids["valkey"] = self._server.pid
        return pids

    async def start(self) -> None:
        """Start everything, the server first. Raises EmbeddedServerError."""
        if self._server is not None:
            await self._server.start()
            self._watch("valkey", self._keep_server(self._server))
        for program in self._programs:
            self._watch(program.name, self._keep(program))

    async def serve(self) -> None:
        """Run until cancelled. Raises PallasError where a program cannot run as it is set up."""
        # Shielded: whoever stops waiting must not cancel what others wait for.
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """Stop workers and hub together, then the server, so that they can still say goodbye to it."""
        self._stopping = True
        await asyncio.gather(*(child.stop(self._grace_s) for child in self._children.values()))
        await self._tasks.stop()
        if self._server is not None:
            await self._server.stop()

    def _watch(self, name: str, keeping: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(keeping, f"keep {name}").add_done_callback(lambda task: self._unkept(name, task))

    def _unkept(self, name: str, task: asyncio.Task[None]) -> None:
        """Nobody looks after the process any more: better to end than to look alive."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._give_up(PallasError(f"{name} cannot be kept running: {error}"))

    async def _keep(self, program: Program) -> None:
        wait_s, first = _FIRST_WAIT_S, True
        while not self._stopping:
            began = self._clock.mono()
            child = await spawn(
                program.name,
                (sys.executable, "-m", "pallas.cli", *program.arguments),
                cwd=self._folder,
                env=self._environ,
                death_signal=signal.SIGTERM,
            )
            self._children[program.name] = child
            code = await child.wait()
            lived = self._clock.mono() - began
            if self._stopping:
                return
            if first and code == FAILED and lived < _SETTLED_S:
                self._give_up(PallasError(f"{program.name} cannot run; what it says above tells why"))
                return
            first = False
            wait_s = _FIRST_WAIT_S if lived > _STABLE_S else min(_LONGEST_WAIT_S, wait_s * 2)
            _log.error(
                "process.ended",
                process=program.name,
                exit_code=code,
                lived_s=round(lived, 1),
                again_in_s=wait_s,
                hint=program.hint,
            )
            await asyncio.sleep(wait_s)

    async def _keep_server(self, server: EmbeddedServer) -> None:
        try:
            await server.keep()
        except EmbeddedServerError as error:
            self._give_up(error)

    def _give_up(self, error: PallasError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

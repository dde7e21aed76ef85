"""A whole deployment on one machine, as `pallas up` runs it: which programs there are and when all are ready."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from pallas.errors import PallasError
from shard.endpoints import Endpoint, running
from shard.local_http import get
from shard.port_checks import Port, try_port
from shard.supervisor import Program, Supervisor

if TYPE_CHECKING:
    from pallas.clock import Clock
    from pallas.redis import EmbeddedServer
    from pallas.settings import Settings

_READY_S = 30.0
_LOOK_S = 0.05


class Machine:
    """A hub and `workers` workers under a supervisor; they read `environ` and the files of `folder` as this one did."""

    def __init__(
        self,
        settings: Settings,
        workers: int,
        server: EmbeddedServer | None,
        clock: Clock,
        *,
        environ: Mapping[str, str],
        folder: Path,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._names = ["hub", *(f"worker-{shard}" for shard in range(workers))]
        common = ("--data", str(settings.data_dir))
        ports = ("--worker-port", str(settings.worker_port), *(("--app", settings.app) if settings.app else ()))
        hub = ("hub", "--supervised", *common, "--hub-port", str(settings.hub_port))
        worker = ("worker", "--supervised", "--wait", *common, *ports)
        programs = [Program("hub", hub, "workers go on without it")]
        programs += [
            Program(
                f"worker-{shard}",
                (*worker, "--shard-id", str(shard)),
                "what it held is taken over by whoever saw it too; `pallas dead list` shows what could not be",
            )
            for shard in range(workers)
        ]
        self._supervisor = Supervisor(
            programs,
            clock,
            server=server,
            environ=environ,
            folder=folder,
            grace_s=settings.drain_grace_s + 5,
        )
        self._found: dict[str, Endpoint] = {}

    @property
    def hub_url(self) -> str:
        return self._found["hub"].url

    @property
    def worker_urls(self) -> list[str]:
        """Where protocol ends connect, by shard."""
        return [self._found[name].url for name in self._names[1:]]

    @property
    def pids(self) -> dict[str, int]:
        return self._supervisor.pids

    async def start(self) -> None:
        """Start everything; `ready` waits for it."""
        await self._supervisor.start()

    async def ready(self) -> bool:
        """Wait until each process answers that it is ready. Raises PallasError where one cannot become so."""
        failed = asyncio.ensure_future(self._supervisor.serve())
        try:
            limit = self._clock.mono() + _READY_S
            while self._clock.mono() < limit:
                pids = set(self._supervisor.pids.values())
                self._found = {each.name: each for each in running(self._settings.data_dir) if each.pid in pids}
                missing = [name for name in self._names if name not in self._found]
                if not missing:
                    answers = await asyncio.gather(*(asyncio.to_thread(_is_ready, e) for e in self._found.values()))
                    if all(answers):
                        return True
                if failed.done():
                    failed.result()
                await asyncio.sleep(_LOOK_S)
            raise PallasError(f"not ready after {_READY_S:g} s; the log above tells what is missing")
        finally:
            failed.cancel()
            await asyncio.gather(failed, return_exceptions=True)

    async def serve(self) -> None:
        """Run until cancelled. Raises PallasError where a program cannot run."""
        await self._supervisor.serve()

    async def stop(self) -> None:
        """Stop every process."""
        await self._supervisor.stop()

    def end_now(self) -> None:
        """End every process at once; what they had in hand is lost."""
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def free_ports(hub_port: int, worker_port: int, workers: int) -> tuple[int, int]:
    """Ports for a hub and for workers in a row: the given ones where they are free, else others."""
    wanted = [hub_port, *range(worker_port, worker_port + workers)]
    if all(_is_free(port) for port in wanted):
        return hub_port, worker_port
    for base in range(18_000, 60_000, workers + 1):
        if all(_is_free(port) for port in range(base, base + workers + 1)):
            return base, base + 1
    raise PallasError("no free ports between 18000 and 60000")


def _is_free(port: int) -> bool:
    return try_port("127.0.0.1", port) is Port.FREE


def _is_ready(endpoint: Endpoint) -> bool:
    try:
        return get(f"{endpoint.health}/readyz", timeout_s=2.0).status == HTTPStatus.OK
    except OSError:
        return False

"""What the commands of `pallas` run: each process's way from settings to its end.

The top of all packages, so that a command may use every one of them; `pallas.cli` only reads what was typed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from pallas.app import App
from pallas.clock import SystemClock
from pallas.connect import check_admitted, connected, own_server, refuse_memory
from pallas.deployment import DataDir
from pallas.errors import PallasError
from pallas.keys import Keys
from pallas.loader import load as load_app
from pallas.process import Stopping, make_loop, say, unless
from pallas.redis import RedisKind, find_endpoint, parse_url
from shard.blind_view import BlindView
from shard.doctor import NO_BOT, NO_BOT_TODO
from shard.endpoints import Endpoint, running
from shard.hub_view import HubView
from shard.machine import Machine
from shard.port_checks import refuse_taken
from shard.redis_view import RedisView
from shard.worker import Worker
from webui.hub import LINK_LIFE, Hub, announce, auth, first_start, hub_url

if TYPE_CHECKING:
    from pallas.settings import Settings
    from shard.view import ClusterView


@dataclass(slots=True, frozen=True)
class Surroundings:
    """Where a process's children read their settings again: an environment and a folder with `.env`, `pallas.toml`."""

    environ: Mapping[str, str]
    folder: Path


async def run_worker(settings: Settings, stopping: Stopping, *, wait: bool, quiet: bool, as_json: bool) -> int:
    """One worker; with `wait` it waits where another holds its shard id, `quiet` where its supervisor warns."""
    refuse_memory(settings, "`pallas worker`")
    app = _bot(settings)
    if not quiet:
        _warn_without_bot(settings)
    async with connected(settings) as redis:
        await check_admitted(redis)
        worker = Worker(settings, app, redis, SystemClock(), make_loop=make_loop, wait_for_id=wait)
        try:
            await unless(stopping, worker.start())
            if as_json and not stopping.is_set():
                shard = worker.lease.shard_id
                say(json.dumps({"name": f"worker-{shard}", "pid": os.getpid(), "url": worker.url}))
            await unless(stopping, worker.serve())
        finally:
            await worker.stop()
    return 0


async def run_hub(settings: Settings, stopping: Stopping, *, quiet: bool, as_json: bool) -> int:
    """The hub; `quiet` where its supervisor prints the sign-in link."""
    refuse_memory(settings, "`pallas hub`")
    async with connected(settings) as redis:
        await check_admitted(redis)
        hub = Hub(settings, redis, SystemClock())
        try:
            await hub.start()
            if as_json:
                say(json.dumps({"name": "hub", "pid": os.getpid(), "url": hub.url}))
            if not quiet and _should_announce(settings):
                announce(settings, hub.sign_in_link())
            await unless(stopping, hub.serve())
        finally:
            await hub.stop()
    return 0


async def run_unified(settings: Settings, stopping: Stopping, *, as_json: bool) -> int:
    """Hub and one worker in this process, with an embedded server where the settings ask for one."""
    app = _bot(settings)
    notes = _warn_without_bot(settings)
    server = own_server(settings)
    try:
        if server is not None:
            await unless(stopping, server.start())
        if stopping.is_set():
            return 0
        async with connected(settings, server.target if server is not None else None) as redis:
            await check_admitted(redis)
            hub = Hub(settings, redis, SystemClock())
            worker = Worker(settings, app, redis, SystemClock(), make_loop=make_loop, wait_for_id=server is not None)
            try:
                await hub.start()
                if _should_announce(settings):
                    announce(settings, hub.sign_in_link(), notes=notes)
                await unless(stopping, worker.start())
                if as_json and not stopping.is_set():
                    say(json.dumps({"hub": hub.url, "worker": worker.url, "pid": os.getpid()}))
                kept = [server.keep()] if server is not None else []
                await unless(stopping, _until_one_fails(hub.serve(), worker.serve(), *kept))
            finally:
                await worker.stop()
                await hub.stop()
    finally:
        if server is not None:
            await server.stop()
    return 0


async def run_up(settings: Settings, workers: int, around: Surroundings, stopping: Stopping, *, as_json: bool) -> int:
    """A whole deployment on this machine; what keeps it from running is told once, before anything is started."""
    refuse_memory(settings, "`pallas up`")
    _bot(settings, around.folder)
    if parse_url(settings.redis_url).kind is not RedisKind.EMBEDDED:
        async with connected(settings) as redis:
            await check_admitted(redis)
        refuse_taken(settings, workers)
    elif find_endpoint(settings.data_dir) is None:
        # Where another process has this folder's server, starting ours tells which.
        refuse_taken(settings, workers)
    notes = _warn_without_bot(settings)
    async with deployment(settings, workers, around, stopping) as machine:
        if machine is None:
            return 0
        if as_json:
            say(json.dumps({"hub": machine.hub_url, "workers": machine.worker_urls, "pids": machine.pids}))
        if _should_announce(settings):
            announce(settings, new_link(settings), worker_urls=machine.worker_urls, notes=notes)
        await unless(stopping, machine.serve())
    return 0


@contextlib.asynccontextmanager
async def deployment(
    settings: Settings, workers: int, around: Surroundings, stopping: Stopping, *, throw_away: bool = False
) -> AsyncIterator[Machine | None]:
    """A deployment that is ready; None where the process is asked to stop before that.

    `throw_away` ends it without a goodbye where the person is in a hurry: nothing of it will be read again.
    """
    machine = Machine(
        settings, workers, own_server(settings), SystemClock(), environ=around.environ, folder=around.folder
    )
    if throw_away:
        stopping.hurried.append(machine.end_now)
    try:
        await unless(stopping, machine.start())
        yield machine if await unless(stopping, machine.ready()) else None
    finally:
        await machine.stop()


async def run_new_link(settings: Settings) -> int:
    """Print a sign-in link for the hub that runs on this data folder. Raises PallasError where none does."""
    hub = _hub_of(settings)
    if hub is None:
        raise PallasError(
            f"no hub runs on the data folder {settings.data_dir}: start one with `pallas up`, `pallas unified` or "
            "`pallas hub`, or name the folder of the running one with --data"
        )
    say(new_link(settings, hub.url))
    sys.stderr.write(f"{LINK_LIFE}\n")
    return 0


def new_link(settings: Settings, url: str = "") -> str:
    """A link that signs in once, at the hub of this data folder; `url` where that is not where the settings say."""
    code = auth(settings, DataDir(settings.data_dir), SystemClock()).issue_link()
    return f"{url or hub_url(settings)}/signin?code={code}"


@contextlib.asynccontextmanager
async def view_of(settings: Settings) -> AsyncIterator[ClusterView]:
    """The deployment through its Redis, or through its hub where only that process can reach it."""
    kind = parse_url(settings.redis_url).kind
    if kind is RedisKind.MEMORY or (kind is RedisKind.EMBEDDED and find_endpoint(settings.data_dir) is None):
        hub = _hub_of(settings)
        if hub is not None:
            yield HubView(hub, auth(settings, DataDir(settings.data_dir), SystemClock()).issue_bearer)
            return
        yield BlindView(
            f"nothing runs on the data folder {settings.data_dir}: start `pallas up` or `pallas unified` with it, name "
            "the running deployment's folder with --data, or set PALLAS_REDIS_URL to its Redis or Valkey"
        )
        return
    # A person can wait longer for a busy server than a message can.
    patient = settings.model_copy(update={"claim_wait_ms": settings.redis_dead_after_ms})
    async with connected(patient) as redis:
        keys = Keys(settings.redis_prefix)
        yield RedisView(redis, keys, SystemClock(), name="command", purge_s=settings.presence_purge_s)


def _hub_of(settings: Settings) -> Endpoint | None:
    return next((endpoint for endpoint in running(settings.data_dir) if endpoint.name == "hub"), None)


def _bot(settings: Settings, folder: Path | None = None) -> App:
    # Without a bot a worker still sees everything: all messages are ignored, and counted.
    return load_app(settings.app, folder=folder) if settings.app else App("no-bot")


def _warn_without_bot(settings: Settings) -> tuple[str, ...]:
    """Log that nobody will answer, where that is so; what to print of it below the banner."""
    if settings.app:
        return ()
    structlog.get_logger().warning("app.unset", detail=NO_BOT, hint=NO_BOT_TODO)
    return (f"{NO_BOT[0].upper()}{NO_BOT[1:]}. {NO_BOT_TODO[0].upper()}{NO_BOT_TODO[1:]}.",)


def _should_announce(settings: Settings) -> bool:
    return first_start(settings.data_dir) or sys.stderr.isatty()


async def _until_one_fails(*work: Coroutine[Any, Any, None]) -> None:
    """Run all until one of them fails; its error is raised as it is, not in a group."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

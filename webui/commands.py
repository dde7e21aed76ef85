"""What the commands of `pallas` run: each process's way from settings to its end.

The top of all packages, so that a command may use every one of them; `pallas.cli` only reads what was typed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pallas.app import App
from pallas.clock import SystemClock
from pallas.connect import connected, own_server
from pallas.deployment import DataDir
from pallas.keys import Keys
from pallas.loader import load as load_app
from pallas.process import Stopping, make_loop, say, unless
from pallas.redis import RedisKind, find_endpoint, parse_url
from shard.blind_view import BlindView
from shard.endpoints import Endpoint, running
from shard.hub_view import HubView
from shard.machine import Machine
from shard.redis_view import RedisView
from shard.worker import Worker
from webui.hub import Hub, announce, announce_url, auth, first_start, hub_url

if TYPE_CHECKING:
    from pallas.settings import Settings
    from shard.view import ClusterView


@dataclass(slots=True, frozen=True)
class Surroundings:
    """Where a process's children read their settings again: an environment and a folder with `.env`, `pallas.toml`."""

    environ: Mapping[str, str]
    folder: Path


async def run_worker(settings: Settings, stopping: Stopping, *, wait: bool) -> int:
    """One worker; with `wait` it waits where another holds its shard id."""
    app = _bot(settings)
    async with connected(settings) as redis:
        worker = Worker(settings, app, redis, SystemClock(), make_loop=make_loop, wait_for_id=wait)
        try:
            await unless(stopping, worker.start())
            await unless(stopping, worker.serve())
        finally:
            await worker.stop()
    return 0


async def run_hub(settings: Settings, stopping: Stopping, *, quiet: bool) -> int:
    """The hub; `quiet` where its supervisor prints the sign-in link."""
    async with connected(settings) as redis:
        hub = Hub(settings, redis, SystemClock())
        try:
            await hub.start()
            if not quiet and _should_announce(settings):
                announce(hub)
            await unless(stopping, hub.serve())
        finally:
            await hub.stop()
    return 0


async def run_unified(settings: Settings, stopping: Stopping) -> int:
    """Hub and one worker in this process, with an embedded server where the settings ask for one."""
    app = _bot(settings)
    server = own_server(settings)
    try:
        if server is not None:
            await unless(stopping, server.start())
        if stopping.is_set():
            return 0
        async with connected(settings, server.target if server is not None else None) as redis:
            hub = Hub(settings, redis, SystemClock())
            worker = Worker(settings, app, redis, SystemClock(), make_loop=make_loop, wait_for_id=server is not None)
            try:
                await hub.start()
                if _should_announce(settings):
                    announce(hub)
                await unless(stopping, worker.start())
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
    """A whole deployment on this machine."""
    async with deployment(settings, workers, around, stopping) as machine:
        if machine is None:
            return 0
        if as_json:
            say(json.dumps({"hub": machine.hub_url, "workers": machine.worker_urls, "pids": machine.pids}))
        if _should_announce(settings):
            announce_url(settings, SystemClock(), machine.worker_urls)
        await unless(stopping, machine.serve())
    return 0


@contextlib.asynccontextmanager
async def deployment(
    settings: Settings, workers: int, around: Surroundings, stopping: Stopping
) -> AsyncIterator[Machine | None]:
    """A deployment that is ready; None where the process is asked to stop before that."""
    machine = Machine(
        settings, workers, own_server(settings), SystemClock(), environ=around.environ, folder=around.folder
    )
    try:
        await unless(stopping, machine.start())
        yield machine if await unless(stopping, machine.ready()) else None
    finally:
        await machine.stop()


def sign_in_link(settings: Settings) -> str:
    """A new one-time link for the hub that runs on this data folder."""
    code = auth(settings, DataDir(settings.data_dir), SystemClock()).issue_link()
    hub = _hub_of(settings)
    return f"{hub_url(settings) if hub is None else hub.url}/signin?code={code}"


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


def _bot(settings: Settings) -> App:
    # Without a bot a worker still sees everything: all messages are ignored, and counted.
    return load_app(settings.app) if settings.app else App("no-bot")


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

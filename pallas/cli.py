"""The command `pallas`: reads settings, starts processes, and prints what it finds.

Everything is put together here and imported by nobody; what a command does stands in the packages below.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pallas import log
from pallas.clock import SystemClock
from pallas.errors import PallasError, SettingsError
from pallas.process import FAILED, Stopping, complain, make_loop, run, unless
from pallas.settings import Settings, load
from pallas.tasks import Tasks
from pallas.version import VERSION

if TYPE_CHECKING:
    from pallas.app import App
    from pallas.redis import EmbeddedServer, Redis, RedisTarget
    from pallas.simulate import LedgerReport, Progress
    from shard.machine import Machine
    from shard.view import ClusterView

cli = typer.Typer(
    name="pallas",
    help="Coordinates a fleet of chat-bot accounts: every message is handled exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Data = Annotated[Path | None, typer.Option("--data", help="Data folder (PALLAS_DATA_DIR).", show_default=False)]
AppOption = Annotated[
    str | None, typer.Option("--app", help="Your bot, as module:app (PALLAS_APP).", show_default=False)
]
HubPort = Annotated[int | None, typer.Option("--hub-port", help="Port of the hub (8088).", show_default=False)]
WorkerPort = Annotated[
    int | None, typer.Option("--worker-port", help="Base port: worker K listens on it + K (8090).", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Hidden = Annotated[bool, typer.Option(hidden=True)]


@cli.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Coordinates a fleet of chat-bot accounts: every message is handled exactly once."""
    if version:
        print(VERSION)
        raise typer.Exit


@cli.command()
def up(
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="How many workers.")] = 2,
    app: AppOption = None,
    data: Data = None,
    hub_port: HubPort = None,
    worker_port: WorkerPort = None,
    as_json: AsJson = False,
) -> None:
    """Start a hub and workers on this machine, with an embedded Valkey unless PALLAS_REDIS_URL names a server."""
    settings = _settings(data_dir=data, app=app, hub_port=hub_port, worker_port=worker_port)
    _exit(run(lambda stopping: _up(settings, workers, stopping, as_json=as_json)))


@cli.command()
def hub(
    data: Data = None,
    hub_port: HubPort = None,
    new_link: Annotated[bool, typer.Option("--new-link", help="Print a sign-in link for the running hub.")] = False,
    supervised: Hidden = False,
) -> None:
    """Start the hub: pages, JSON API, health."""
    settings = _settings(data_dir=data, hub_port=hub_port)
    if new_link:
        _new_link(settings)
        return
    _exit(run(lambda stopping: _hub(settings, stopping, quiet=supervised)))


@cli.command()
def worker(
    shard_id: Annotated[int | None, typer.Option("--shard-id", min=0, max=255, show_default=False)] = None,
    app: AppOption = None,
    data: Data = None,
    worker_port: WorkerPort = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait where another worker holds the id.")] = False,
) -> None:
    """Start one worker; without --shard-id it takes the lowest free id."""
    settings = _settings(data_dir=data, app=app, worker_port=worker_port, shard_id=shard_id)
    _exit(run(lambda stopping: _worker(settings, stopping, wait=wait)))


@cli.command()
def unified(app: AppOption = None, data: Data = None, hub_port: HubPort = None, worker_port: WorkerPort = None) -> None:
    """Run hub and one worker in this one process."""
    settings = _settings(data_dir=data, app=app, hub_port=hub_port, worker_port=worker_port)
    if settings.shard_id is None:
        settings = settings.model_copy(update={"shard_id": 0})
    _exit(run(lambda stopping: _unified(settings, stopping)))


@cli.command()
def demo(
    data: Data = None,
    accounts: Annotated[int, typer.Option(help="Simulated accounts.")] = 8,
    groups: Annotated[int, typer.Option(help="Groups they share.")] = 10,
    messages: Annotated[int, typer.Option(help="Numbered messages.")] = 300,
    rate: Annotated[float, typer.Option(help="Messages per second.")] = 50.0,
    seed: Annotated[int, typer.Option(help="Same seed, same traffic.")] = 1,
    url: Annotated[list[str] | None, typer.Option("--url", help="A worker's address; may be repeated.")] = None,
    all_in_one: Annotated[bool, typer.Option("--all-in-one", help="Start a throw-away deployment for it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Connect simulated accounts to running workers, and keep the books from outside."""
    settings = _settings(quiet=True, data_dir=data)
    options = {
        "accounts": accounts,
        "groups": groups,
        "messages": messages,
        "rate": rate,
        "seed": seed,
        "urls": tuple(url or ()),
    }
    if all_in_one:
        _exit(run(lambda stopping: _demo_all(settings, options, stopping, as_json=as_json)))
    _exit(run(lambda stopping: _demo(settings, options, stopping, as_json=as_json)))


@cli.command()
def status(data: Data = None, as_json: AsJson = False) -> None:
    """Show the deployment: processes, workers, accounts, books."""
    _show("status", data, as_json=as_json)


@cli.command()
def bots(data: Data = None, as_json: AsJson = False) -> None:
    """List the accounts and what is known of each."""
    _show("bots", data, as_json=as_json)


@cli.command()
def books(data: Data = None, as_json: AsJson = False) -> None:
    """Show that every report and every message is accounted for; exit code 1 if not."""
    _show("books", data, as_json=as_json)


@cli.command()
def doctor(data: Data = None, as_json: AsJson = False) -> None:
    """Check settings, Redis, ports and clocks, and say what to do; exit code 1 on a fault."""
    from shard import doctor as checks

    try:
        settings = load(data_dir=data)
    except SettingsError as error:
        found = [checks.bad_settings(error)]
        checks.print_findings(found, as_json=as_json)
        _exit(FAILED)
    log.configure(level="error", form="console", secrets=settings.secret_values())

    async def main(_: Stopping) -> int:
        found = await checks.examine(settings, SystemClock())
        checks.print_findings(found, as_json=as_json)
        return checks.exit_code(found)

    _exit(run(main))


def main() -> None:
    """The console script."""
    cli()


def _settings(*, quiet: bool = False, **given: Any) -> Settings:
    try:
        settings = load(**given)
    except SettingsError as error:
        complain(str(error))
        _exit(FAILED)
    log.configure(
        level="warning" if quiet and settings.log_level == "info" else settings.log_level,
        form=settings.log_format,
        secrets=settings.secret_values(),
    )
    if not quiet:
        for warning in settings.warnings:
            complain(warning)
    return settings


def _exit(code: int) -> Any:
    raise typer.Exit(code)


def _load_app(settings: Settings) -> App:
    from pallas.app import App
    from pallas.loader import load as load_app

    # Without a bot a worker still sees everything: all messages are ignored, and counted.
    return load_app(settings.app) if settings.app else App("no-bot")


@contextlib.asynccontextmanager
async def _redis(settings: Settings, target: RedisTarget | None = None) -> AsyncIterator[Redis]:
    from pallas.redis import RedisKind, find_endpoint, open_redis, parse_url

    target = target or parse_url(settings.redis_url)
    if target.kind is RedisKind.EMBEDDED:
        url = find_endpoint(settings.data_dir)
        if url is None:
            raise SettingsError(
                f"no embedded server runs on {settings.data_dir}: start `pallas up` or `pallas unified` with this data "
                "folder, or set PALLAS_REDIS_URL to your own Redis or Valkey"
            )
        target = parse_url(url)
    tasks = Tasks()
    redis = open_redis(target, tasks, late_ms=settings.claim_wait_ms, dead_after_ms=settings.redis_dead_after_ms)
    try:
        yield redis
    finally:
        await redis.close()
        await tasks.stop()


def _embedded(settings: Settings) -> EmbeddedServer | None:
    from pallas.redis import EmbeddedServer, RedisKind, parse_url

    return EmbeddedServer(settings.data_dir) if parse_url(settings.redis_url).kind is RedisKind.EMBEDDED else None


async def _worker(settings: Settings, stopping: Stopping, *, wait: bool) -> int:
    from shard.worker import Worker

    app = _load_app(settings)
    async with _redis(settings) as redis:
        worker = Worker(settings, app, redis, SystemClock(), make_loop=make_loop, wait_for_id=wait)
        try:
            await unless(stopping, worker.start())
            await unless(stopping, worker.serve())
        finally:
            await worker.stop()
    return 0


async def _hub(settings: Settings, stopping: Stopping, *, quiet: bool) -> int:
    from webui.hub import Hub, announce, first_start

    async with _redis(settings) as redis:
        hub = Hub(settings, redis, SystemClock())
        try:
            await hub.start()
            if not quiet and (first_start(settings.data_dir) or sys.stderr.isatty()):
                announce(hub)
            await unless(stopping, hub.serve())
        finally:
            await hub.stop()
    return 0


async def _unified(settings: Settings, stopping: Stopping) -> int:
    from shard.worker import Worker
    from webui.hub import Hub, announce, first_start

    app = _load_app(settings)
    server = _embedded(settings)
    if server is not None:
        await server.start()
    try:
        async with _redis(settings, server.target if server is not None else None) as redis:
            hub = Hub(settings, redis, SystemClock())
            worker = Worker(settings, app, redis, SystemClock(), make_loop=make_loop)
            try:
                await hub.start()
                if first_start(settings.data_dir) or sys.stderr.isatty():
                    announce(hub)
                await unless(stopping, worker.start())
                await unless(stopping, _first(hub.serve(), worker.serve()))
            finally:
                await worker.stop()
                await hub.stop()
    finally:
        if server is not None:
            await server.stop()
    return 0


async def _first(*work: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)


async def _up(settings: Settings, workers: int, stopping: Stopping, *, as_json: bool) -> int:
    from webui.hub import announce_url, first_start

    async with _cluster(settings, workers, stopping, environ=os.environ, folder=Path.cwd()) as cluster:
        if cluster is None:
            return 0
        if as_json:
            print(
                json.dumps({"hub": cluster.hub_url, "workers": cluster.worker_urls, "pids": cluster.pids}), flush=True
            )
        if first_start(settings.data_dir) or sys.stderr.isatty():
            announce_url(settings, SystemClock(), cluster.worker_urls)
        await unless(stopping, cluster.serve())
    return 0


@contextlib.asynccontextmanager
async def _cluster(
    settings: Settings, workers: int, stopping: Stopping, *, environ: Mapping[str, str], folder: Path
) -> AsyncIterator[Machine | None]:
    from shard.machine import Machine

    machine = Machine(settings, workers, _embedded(settings), SystemClock(), environ=environ, folder=folder)
    try:
        await machine.start()
        yield machine if await unless(stopping, machine.ready()) else None
    finally:
        await machine.stop()


def _new_link(settings: Settings) -> None:
    from pallas.deployment import DataDir
    from webui.hub import auth, hub_url

    code = auth(settings, DataDir(settings.data_dir), SystemClock()).issue_link()
    print(f"{hub_url(settings)}/signin?code={code}")


async def _demo(settings: Settings, options: dict[str, Any], stopping: Stopping, *, as_json: bool) -> int:
    from shard.endpoints import running

    if not options["urls"]:
        found = [endpoint.url for endpoint in running(settings.data_dir) if endpoint.name.startswith("worker-")]
        if not found:
            raise PallasError(
                f"no worker runs on the data folder {settings.data_dir}: start "
                "`pallas up --workers 2 --app pallas.demo:app` first, name its folder with --data, give --url, "
                "or use --all-in-one"
            )
        options = options | {"urls": tuple(found)}
    report = await _play(settings, options, stopping, as_json=as_json)
    return 0 if report is not None and report.ok else 1


async def _play(
    settings: Settings, options: dict[str, Any], stopping: Stopping, *, as_json: bool
) -> LedgerReport | None:
    from pallas.simulate import Options
    from pallas.simulate import run as simulate

    token = settings.onebot_token.get_secret_value() if settings.onebot_token else ""
    report = await unless(stopping, simulate(Options(**options, token=token), _silent if as_json else _tell))
    if report is None:
        return None
    if as_json:
        print(json.dumps(report.as_dict(), ensure_ascii=False), flush=True)
    else:
        row = report.as_dict()
        print("\n  The ledger, kept outside the product:")
        for name in ("physical", "reports", "answered", "lost", "doubled"):
            print(f"    {name:<10}{row[name]:>8}")
        print(flush=True)
    return report


def _tell(progress: Progress) -> None:
    print(f"  {progress}", flush=True)


def _silent(_: Progress) -> None:
    pass


async def _demo_all(settings: Settings, options: dict[str, Any], stopping: Stopping, *, as_json: bool) -> int:
    """A deployment of its own in a folder of its own, gone afterwards."""
    from shard.machine import free_ports
    from webui.hub import announce_url

    folder = Path(tempfile.mkdtemp(prefix="pallas-demo-"))
    hub_port, worker_port = free_ports(settings.hub_port, settings.worker_port, 2)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PALLAS_")}
    environ |= {
        "PALLAS_APP": "pallas.demo:app",
        "PALLAS_DATA_DIR": str(folder / "data"),
        "PALLAS_HUB_PORT": str(hub_port),
        "PALLAS_WORKER_PORT": str(worker_port),
        "PALLAS_ONEBOT_TOKEN": secrets.token_urlsafe(24),
        "PALLAS_LOG_LEVEL": "warning",
    }
    own = load(environ=environ, cwd=folder)
    log.configure(level=own.log_level, form=own.log_format, secrets=own.secret_values())
    say = _quiet_say if as_json else _say
    try:
        say("Starting an embedded Valkey, a hub and two workers …")
        async with _cluster(own, 2, stopping, environ=environ, folder=folder) as cluster:
            if cluster is None:
                return 0
            if not as_json:
                announce_url(own, SystemClock(), cluster.worker_urls, stream=sys.stdout)
            say(f"Connecting {options['accounts']} simulated accounts of four protocol ends to both workers …")
            report = await _play(own, options | {"urls": tuple(cluster.worker_urls)}, stopping, as_json=as_json)
            if report is None:
                return 0
            if sys.stdout.isatty() and not as_json:
                say(f"Everything keeps running, look at {cluster.hub_url}; press Ctrl-C to stop.")
                await unless(stopping, cluster.serve())
            return 0 if report.ok else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    print(f"[pallas] {text}", flush=True)


def _quiet_say(text: str) -> None:
    del text


def _show(what: str, data: Path | None, *, as_json: bool) -> None:
    from shard import terminal

    settings = _settings(quiet=True, data_dir=data)

    async def main(_: Stopping) -> int:
        async with _view(settings) as view:
            return await terminal.show(what, view, settings.data_dir, SystemClock(), as_json=as_json)

    _exit(run(main))


@contextlib.asynccontextmanager
async def _view(settings: Settings) -> AsyncIterator[ClusterView]:
    from pallas.keys import Keys
    from shard.redis_view import RedisView

    async with _redis(settings) as redis:
        keys = Keys(settings.redis_prefix)
        yield RedisView(redis, keys, SystemClock(), name="command", purge_s=settings.presence_purge_s)


if __name__ == "__main__":
    main()

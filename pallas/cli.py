"""The command `pallas`: reads settings, starts processes, and prints what it finds.

Everything is put together here and imported by nobody; what a command does stands in the packages below.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from pallas import log
from pallas.clock import SystemClock
from pallas.errors import SettingsError
from pallas.process import FAILED, Stopping, complain, run, say
from pallas.settings import Settings, load
from pallas.version import VERSION

cli = typer.Typer(
    name="pallas",
    help="Coordinates a fleet of chat-bot accounts: one handler answers each message.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

dead_letters = typer.Typer(
    help="Messages that ended as dead: lost, or answered nobody knows how.", no_args_is_help=True
)
cli.add_typer(dead_letters, name="dead")

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
    """Coordinates a fleet of chat-bot accounts: one handler answers each message."""
    if version:
        say(VERSION)
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
    from webui.commands import run_up

    _exit(run(lambda stopping: run_up(settings, workers, _surroundings(), stopping, as_json=as_json)))


@cli.command()
def hub(
    data: Data = None,
    hub_port: HubPort = None,
    new_link: Annotated[bool, typer.Option("--new-link", help="Print a sign-in link for the running hub.")] = False,
    as_json: AsJson = False,
    supervised: Hidden = False,
) -> None:
    """Start the hub: pages, JSON API, health."""
    from webui.commands import run_hub, run_new_link

    settings = _settings(data_dir=data, hub_port=hub_port)
    if new_link:
        _exit(run(lambda _: run_new_link(settings)))
    _exit(run(lambda stopping: run_hub(settings, stopping, quiet=supervised, as_json=as_json)))


@cli.command()
def worker(
    shard_id: Annotated[int | None, typer.Option("--shard-id", min=0, max=255, show_default=False)] = None,
    app: AppOption = None,
    data: Data = None,
    worker_port: WorkerPort = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait where another worker holds the id.")] = False,
    as_json: AsJson = False,
    supervised: Hidden = False,
) -> None:
    """Start one worker; without --shard-id it takes the lowest free id."""
    settings = _settings(data_dir=data, app=app, worker_port=worker_port, shard_id=shard_id)
    from webui.commands import run_worker

    _exit(run(lambda stopping: run_worker(settings, stopping, wait=wait, quiet=supervised, as_json=as_json)))


@cli.command()
def unified(
    app: AppOption = None,
    data: Data = None,
    hub_port: HubPort = None,
    worker_port: WorkerPort = None,
    as_json: AsJson = False,
) -> None:
    """Run hub and one worker in this one process."""
    settings = _settings(data_dir=data, app=app, hub_port=hub_port, worker_port=worker_port)
    if settings.shard_id is None:
        settings = settings.model_copy(update={"shard_id": 0})
    from webui.commands import run_unified

    _exit(run(lambda stopping: run_unified(settings, stopping, as_json=as_json)))


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
    from pallas.simulate import Options
    from webui.demonstration import run_all_in_one, run_demo, worker_urls

    settings = _settings(quiet=True, data_dir=data)

    def options(urls: tuple[str, ...], token: str) -> Options:
        return Options(
            accounts=accounts, groups=groups, messages=messages, rate=rate, seed=seed, urls=urls, token=token
        )

    async def play(stopping: Stopping) -> int:
        if all_in_one:
            return await run_all_in_one(settings, options, os.environ, stopping, as_json=as_json)
        token = settings.onebot_token.get_secret_value() if settings.onebot_token else ""
        urls = tuple(url or ()) or worker_urls(settings.data_dir)
        return await run_demo(options(urls, token), stopping, as_json=as_json)

    _exit(run(play))


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


@dead_letters.command("list")
def dead_list(data: Data = None, as_json: AsJson = False) -> None:
    """List the messages that ended as dead, the latest first: which may have been answered, and which were lost."""
    _show("dead", data, as_json=as_json)


@cli.command()
def doctor(data: Data = None, as_json: AsJson = False) -> None:
    """Check settings, Redis, ports and clocks, and say what to do; exit code 1 on a fault."""
    from shard import doctor as checks
    from shard.words import locale_of

    shown: dict[str, Any] = {"as_json": as_json, "locale": locale_of(os.environ), "plain": _is_plain()}
    try:
        settings = load(data_dir=data)
    except SettingsError as error:
        checks.print_findings([checks.bad_settings(error)], **shown)
        _exit(FAILED)
    log.configure(level="error", form="console", secrets=settings.secret_values())

    async def main(_: Stopping) -> int:
        found = await checks.examine(settings, SystemClock())
        checks.print_findings(found, **shown)
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


def _show(what: str, data: Path | None, *, as_json: bool) -> None:
    from shard import terminal
    from shard.words import locale_of
    from webui.commands import view_of

    settings = _settings(quiet=True, data_dir=data)

    async def main(_: Stopping) -> int:
        async with view_of(settings) as view:
            return await terminal.show(
                what,
                view,
                settings.data_dir,
                SystemClock(),
                as_json=as_json,
                locale=locale_of(os.environ),
                plain=_is_plain(),
                onebot_path=settings.onebot_path,
            )

    _exit(run(main))


def _is_plain() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def _surroundings() -> Any:
    from webui.commands import Surroundings

    return Surroundings(os.environ, Path.cwd())


if __name__ == "__main__":
    main()

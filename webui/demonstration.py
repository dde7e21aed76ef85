"""`pallas demo`: simulated accounts against running workers, or against a throw-away deployment of its own."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pallas import log
from pallas.clock import SystemClock
from pallas.errors import PallasError
from pallas.process import Stopping, say, unless
from pallas.settings import load
from pallas.simulate import LedgerReport, Options, Stage, simulated
from shard.endpoints import running
from shard.machine import free_ports
from webui.commands import Surroundings, deployment, new_link
from webui.hub import LINK_LIFE, announce

if TYPE_CHECKING:
    from pallas.settings import Settings
    from pallas.simulate import Progress
    from pallas.simulate.ledger import Example

WORKERS = 2
_FORGET_S = 2.0
_NO_ANSWER_S = 2.0
"""The demo bot answers within a fraction of it."""
_GIVE_UP_S = 5.0
"""A person who waits for another bot than the demo's need not be kept; a program may know better."""


def worker_urls(data_dir: Path) -> tuple[str, ...]:
    """Where the workers of a data folder listen. Raises PallasError where none runs."""
    found = tuple(endpoint.url for endpoint in running(data_dir) if endpoint.name.startswith("worker-"))
    if not found:
        raise PallasError(
            f"no worker runs on the data folder {data_dir}: start `pallas up --workers 2 --app pallas.demo:app` first, "
            "name its folder with --data, give --url, or use --all-in-one"
        )
    return found


async def run_demo(options: Options, stopping: Stopping, *, as_json: bool) -> int:
    """Play against workers that run; exit code 1 if anything was lost or doubled."""
    if not as_json:
        options = replace(options, unanswered_s=min(options.unanswered_s, _GIVE_UP_S))
    async with _played(options, stopping, as_json=as_json) as report:
        return 0 if report is not None and report.ok else 1


async def run_all_in_one(
    settings: Settings,
    options: Callable[[tuple[str, ...], str], Options],
    environ: Mapping[str, str],
    stopping: Stopping,
    *,
    as_json: bool,
) -> int:
    """Start a deployment in a folder of its own, play against it, and take it away again.

    `options` makes the run's options from the workers' addresses and their token. In a terminal the deployment stays
    until it is asked to stop.
    """
    folder = Path(tempfile.mkdtemp(prefix="pallas-demo-"))
    began = SystemClock().mono()
    stopping.hurried.append(lambda: _forget(folder, as_json=as_json))
    try:
        own, around = _own_settings(settings, environ, folder)
        _tell("Starting an embedded Valkey, a hub and two workers …", as_json=as_json)
        async with deployment(own, WORKERS, around, stopping, throw_away=True) as machine:
            if machine is None:
                return 0
            if not as_json:
                announce(own, new_link(own), worker_urls=machine.worker_urls, stream=sys.stdout)
            token = own.onebot_token.get_secret_value() if own.onebot_token else ""
            chosen = options(tuple(machine.worker_urls), token)
            ready = f"All ready after {SystemClock().mono() - began:.1f} s."
            _tell(f"{ready} Connecting {chosen.accounts} simulated accounts of four protocol ends …", as_json=as_json)
            async with _played(chosen, stopping, as_json=as_json) as report:
                if report is None:
                    return 0
                if sys.stdout.isatty() and not as_json:
                    _tell("Everything keeps running, its accounts stay connected; press Ctrl-C to stop.", as_json=False)
                    say(f"  Look at it   {new_link(own)}   {LINK_LIFE}")
                    await unless(stopping, machine.serve())
                return 0 if report.ok else 1
    finally:
        _forget(folder, as_json=as_json)


def _forget(folder: Path, *, as_json: bool) -> None:
    """Remove the folder, also while processes that were just killed still leave it."""
    give_up = time.monotonic() + _FORGET_S
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < give_up:
        time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)
    left = f"its folder {folder} could not be removed" if folder.exists() else "no process and no file of it is left"
    _tell(f"Stopped: {left}.", as_json=as_json)


def _own_settings(settings: Settings, environ: Mapping[str, str], folder: Path) -> tuple[Settings, Surroundings]:
    hub_port, worker_port = free_ports(settings.hub_port, settings.worker_port, WORKERS)
    own = {name: value for name, value in environ.items() if not name.startswith("PALLAS_")}
    own |= {
        "PALLAS_APP": "pallas.demo:app",
        "PALLAS_DATA_DIR": str(folder / "data"),
        "PALLAS_HUB_PORT": str(hub_port),
        "PALLAS_WORKER_PORT": str(worker_port),
        "PALLAS_ONEBOT_TOKEN": secrets.token_urlsafe(24),
        "PALLAS_LOG_LEVEL": "warning",
    }
    loaded = load(environ=own, cwd=folder)
    log.configure(level=loaded.log_level, form=loaded.log_format, secrets=loaded.secret_values())
    return loaded, Surroundings(own, folder)


@contextlib.asynccontextmanager
async def _played(options: Options, stopping: Stopping, *, as_json: bool) -> AsyncIterator[LedgerReport | None]:
    """The report of a run, printed; None where it was stopped. The accounts stay connected in the block."""
    async with simulated(options, _silent if as_json else _Told().progress) as simulation:

        async def play() -> LedgerReport:
            await simulation.connect()
            return await simulation.play()

        report = await unless(stopping, play())
        if report is not None:
            _print(report, simulation.ledger.sample(), as_json=as_json)
        yield report


def _print(report: LedgerReport, sample: Example | None, *, as_json: bool) -> None:
    row = report.as_dict()
    if as_json:
        say(json.dumps(row, ensure_ascii=False))
        return
    if report.physical and not report.answered:
        say("\n  Nothing was answered: the workers must run the demo bot, `--app pallas.demo:app`.")
        say("  Where they do, `pallas status` tells what they wait for.")
    if sample is not None:
        reported, answer = len(sample.reported_by), sample.text.replace("ping", "pong", 1)
        by = f"{reported} accounts report it" if reported > 1 else "one account reports it"
        say(f"\n  For example: a person writes `{sample.text}` in group {sample.group};")
        say(f"  {by}, and one of them ({sample.answered_by[0]}) answers `{answer}`.")
    say("\n  The ledger, kept outside the product:")
    for name in ("physical", "reports", "answered", "lost", "doubled"):
        say(f"    {name:<10}{row[name]:>8}")
    say("")


class _Told:
    """Tells a person of a run, and as soon as it shows that nobody answers, what the reason may be."""

    def __init__(self) -> None:
        self._hinted = False

    def progress(self, progress: Progress) -> None:
        """Say one sign of life."""
        say(f"  {progress}")
        late = progress.stage is Stage.SENT or progress.elapsed_s > _NO_ANSWER_S
        if progress.sent and not progress.answered and late and not self._hinted:
            self._hinted = True
            say("  No answer yet: the workers must run the demo bot, `--app pallas.demo:app`.")


def _silent(_: Progress) -> None:
    pass


def _tell(text: str, *, as_json: bool) -> None:
    if not as_json:
        say(f"[pallas] {text}")

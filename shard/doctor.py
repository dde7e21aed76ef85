"""What `pallas doctor` looks at: settings, folder, Redis, ports, bot, tokens and limits, and what to do about each.

It works whatever runs or does not, changes nothing, and never crashes: a check that fails unexpectedly is a finding.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import stat
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pallas
from pallas.addresses import is_loopback
from pallas.clock import Clock
from pallas.deployment import DataDir
from pallas.errors import SettingsError
from pallas.procs import spawn
from pallas.redact import KnownSecrets
from pallas.untrusted import visible
from shard.finding import Check, Finding, Level, exit_code, listing, print_json
from shard.health import Process, processes
from shard.port_checks import port_findings
from shard.redis_checks import megabytes, redis_findings
from shard.table import Ink
from shard.terminal import write
from shard.words import terminal_words

if TYPE_CHECKING:
    from pallas.settings import Settings

__all__ = ["NO_BOT", "NO_BOT_TODO", "bad_settings", "examine", "exit_code", "print_findings"]

NO_BOT = "no bot is set: workers count messages, and nobody answers"
NO_BOT_TODO = "name your bot with --app module:app or PALLAS_APP; `--app pallas.demo:app` is one to try"

_LITTLE_SPACE = 256 << 20
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_FILES_BESIDE_LINKS = 200
_USUAL_FILES = 1024
_APP_S = 30.0
_LOAD_APP = """
import json, sys
spec, own = sys.argv[1:]
out, sys.stdout = sys.stdout, sys.stderr
sys.path.append(own)
from pallas.errors import AppError
from pallas.loader import load
try:
    app = load(spec)
    said = {"name": app.name, "handlers": len(app.handlers)}
except AppError as error:
    said = {"error": str(error)}
print(json.dumps(said), file=out, flush=True)
"""
"""Run in a process of its own: a bot's module may print, hang, exit or start things when it is imported."""


async def examine(settings: Settings, clock: Clock) -> list[Finding]:
    """Everything there is to find, in a fixed order."""
    running = await processes(settings.data_dir)
    checks: list[tuple[Check, Awaitable[list[Finding]]]] = [
        (Check.FOLDER, asyncio.to_thread(folder_findings, settings.data_dir)),
        (Check.REDIS, redis_findings(settings, clock, running)),
        (Check.HUB, asyncio.to_thread(port_findings, settings, running)),
        (Check.APP, _app(settings, running)),
    ]
    secrets = KnownSecrets(settings.secret_values())
    found = await asyncio.gather(*(_guarded(check, work, secrets) for check, work in checks))
    return [
        *_settings(settings),
        *(each for part in found for each in part),
        _token(settings),
        _files(settings),
        _speed(),
    ]


def bad_settings(error: SettingsError) -> Finding:
    """The only finding where the settings cannot be used: nothing else can be looked at then."""
    return Finding(Level.FAIL, Check.SETTINGS, "settings_bad", str(error), "correct that and run `pallas doctor` again")


def print_findings(
    found: Sequence[Finding],
    *,
    as_json: bool,
    locale: str = "",
    plain: bool = False,
    stream: TextIO | None = None,
) -> None:
    """Print the findings for a person in their language, or as one JSON list."""
    stream = sys.stdout if stream is None else stream
    if as_json:
        print_json(found, stream)
        return
    ink = Ink(colour=stream.isatty() and not plain)
    write(stream, "\n".join(listing(found, terminal_words(locale), ink)))


def folder_findings(path: Path) -> list[Finding]:
    """Whether the data folder can be used, by whom, and whether there is room; makes none."""
    if not path.exists():
        home = next(parent for parent in path.parents if parent.exists())
        fields: dict[str, object] = {"path": path, "home": home}
        if os.access(home, os.W_OK | os.X_OK):
            what = f"{path} is not there yet; the first start makes it"
            return [Finding(Level.OK, Check.FOLDER, "folder_absent", what, fields=fields)]
        what = f"{path} is not there, and this user may not make it in {home}"
        todo = "give a folder that this user may write, with --data or PALLAS_DATA_DIR"
        return [Finding(Level.FAIL, Check.FOLDER, "folder_unmakeable", what, todo, fields)]
    try:
        DataDir(path).known_id()
    except SettingsError as error:
        return [Finding(Level.FAIL, Check.FOLDER, "folder_unusable", str(error))]
    facts, free = path.stat(), shutil.disk_usage(path).free
    owner, user = _user(facts.st_uid), _user(os.geteuid())
    mode = f"{stat.S_IMODE(facts.st_mode):o}"
    fields = {"path": path, "owner": owner, "user": user, "free": megabytes(free), "mode": mode}
    what = f"{path} belongs to {owner}; {megabytes(free)} are free"
    found = [Finding(Level.OK, Check.FOLDER, "folder_usable", what, fields=fields)]
    if owner != user:
        what = f"{path} belongs to {owner}, and this command runs as {user}"
        todo = f"run every pallas command as {owner}: what {user} writes there, {owner} may not read"
        found.append(Finding(Level.WARN, Check.FOLDER, "folder_foreign", what, todo, fields))
    if facts.st_mode & _WRITABLE_BY_OTHERS:
        what = f"other users may write into {path} (mode {mode}), and could replace its secrets"
        found.append(Finding(Level.WARN, Check.FOLDER, "folder_open", what, f"chmod 700 {path}", fields))
    if free < _LITTLE_SPACE:
        what = f"only {megabytes(free)} are free for {path}: with a full disk the embedded server refuses all writes"
        found.append(Finding(Level.WARN, Check.FOLDER, "folder_full", what, "free space on its disk", fields))
    return found


async def _guarded(check: Check, work: Awaitable[list[Finding]], secrets: KnownSecrets) -> list[Finding]:
    try:
        return await work
    except Exception as error:
        why = visible(secrets.redact(f"{type(error).__name__}: {error}"), 300)
        todo = "this is a fault of pallas itself: please report it with this line"
        return [Finding(Level.FAIL, check, "check_failed", f"could not be checked: {why}", todo, {"why": why})]


def _settings(settings: Settings) -> list[Finding]:
    given = sum(settings.origin(key) != "the default" for key in type(settings).model_fields)
    fields = {"given": given, "file": settings.config}
    if settings.config:
        what = f"valid, {given} set; file {settings.config}"
        found = [Finding(Level.OK, Check.SETTINGS, "settings_valid_file", what, fields=fields)]
    elif given:
        found = [Finding(Level.OK, Check.SETTINGS, "settings_valid", f"valid, {given} set", fields=fields)]
    else:
        found = [Finding(Level.OK, Check.SETTINGS, "settings_default", "valid, all of them the defaults")]
    return found + [Finding(Level.WARN, Check.SETTINGS, "settings_warning", text) for text in settings.warnings]


async def _app(settings: Settings, running: Sequence[Process]) -> list[Finding]:
    if not settings.app:
        if any(process.endpoint.name != "hub" for process in running):
            what = "not set here; the running workers were given theirs when they were started"
            return [Finding(Level.OK, Check.APP, "app_given_elsewhere", what)]
        return [Finding(Level.WARN, Check.APP, "app_unset", NO_BOT, NO_BOT_TODO)]
    said, code = await _try_app(settings.app)
    if "error" in said:
        why = KnownSecrets(settings.secret_values()).redact(str(said["error"]))
        return [Finding(Level.FAIL, Check.APP, "app_bad", why)]
    fields = {"app": settings.app, "code": code, "limit": f"{_APP_S:g}", **said}
    if not said:
        how = f"did not end within {_APP_S:g} s" if code is None else f"ended the process ({code})"
        what = f"{settings.app}: importing it {how}"
        todo = "import it by hand (python -c 'import …'); a module must only declare things when it is imported"
        return [Finding(Level.FAIL, Check.APP, "app_ends_process", what, todo, fields)]
    what = f"{settings.app} can be loaded: {said['name']!r}, {said['handlers']} handlers"
    return [Finding(Level.OK, Check.APP, "app_loads", what, fields=fields)]


async def _try_app(spec: str) -> tuple[dict[str, object], int | None]:
    """What the loader says in a process of its own; empty with the exit code where that did not get so far."""
    own = str(Path(pallas.__file__).parent.parent)
    child = await spawn(
        "doctor.app",
        [sys.executable, "-c", _LOAD_APP, spec, own],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_APP_S):
            said = await child.stdout.read() if child.stdout is not None else b""
            code = await child.wait()
    except TimeoutError:
        await child.stop(0)
        return {}, None
    try:
        found = json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        return {}, code
    return (found, code) if isinstance(found, dict) else ({}, code)


def _token(settings: Settings) -> Finding:
    if settings.onebot_token is not None:
        return Finding(Level.OK, Check.TOKEN, "token_set", "PALLAS_ONEBOT_TOKEN guards the workers")
    if is_loopback(settings.host):
        what = "no PALLAS_ONEBOT_TOKEN: only protocol ends on this machine are let in"
        return Finding(Level.OK, Check.TOKEN, "token_not_needed", what)
    return Finding(
        Level.WARN,
        Check.TOKEN,
        "token_missing",
        f"workers listen on {settings.host} without PALLAS_ONEBOT_TOKEN: protocol ends of other machines are refused",
        "set PALLAS_ONEBOT_TOKEN, and the same value as access token in each protocol end",
        {"host": settings.host},
    )


def _files(settings: Settings) -> Finding:
    try:
        import resource  # noqa: PLC0415  (POSIX only)
    except ImportError:
        return Finding(Level.OK, Check.LIMITS, "files_unlimited", "this system has no limit of open files to look at")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = settings.max_links + _FILES_BESIDE_LINKS
    fields = {"limit": limit, "links": settings.max_links, "needed": needed}
    if limit != resource.RLIM_INFINITY and limit < needed:
        what = f"a process may open {limit} files, and PALLAS_MAX_LINKS ({settings.max_links}) needs {needed}"
        todo = f"raise it (`ulimit -n {needed}`, LimitNOFILE= of the service), or lower PALLAS_MAX_LINKS"
        # The usual 1024 are enough for most: with them it is advice.
        level = Level.OK if limit >= _USUAL_FILES else Level.WARN
        return Finding(level, Check.LIMITS, "files_few", what, todo, fields)
    return Finding(Level.OK, Check.LIMITS, "files_enough", f"{limit} open files are allowed", fields=fields)


def _speed() -> Finding:
    if importlib.util.find_spec("uvloop") is not None:
        return Finding(Level.OK, Check.SPEED, "uvloop_used", "uvloop is installed and used")
    what = "uvloop is not installed; workers are slower without it"
    return Finding(Level.OK, Check.SPEED, "uvloop_missing", what, "pip install 'pallas-cluster[fast]'")


def _user(uid: int) -> str:
    try:
        import pwd  # noqa: PLC0415  (POSIX only)

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"uid {uid}"

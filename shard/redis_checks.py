"""Whether the deployment's Redis can be used, and whether the prefix in it is ours; for `pallas doctor`.

Asks and never changes anything: no marker is written, no folder made, no server started. Addresses are shown without
their passwords.
"""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING

from pallas.clock import Clock
from pallas.deployment import DataDir
from pallas.errors import EmbeddedServerError, PallasError, RedisError, RedisRefused, SettingsError
from pallas.keys import Keys
from pallas.procs import spawn
from pallas.redact import KnownSecrets
from pallas.redis import (
    Redis,
    RedisFacts,
    RedisKind,
    RedisTarget,
    Severity,
    binary_path,
    find_endpoint,
    open_redis,
    parse_url,
    probe,
    problems,
)
from pallas.tasks import Tasks
from pallas.untrusted import visible
from shard.finding import Check, Finding, Level
from shard.health import Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pallas.settings import Settings

_LATE_MS = 2500
_DEAD_MS = 3000
_VERSION_S = 10.0
_LONGEST = 300


async def redis_findings(settings: Settings, clock: Clock, running: Sequence[Process]) -> list[Finding]:
    """The server the settings name: is it there, does it suit, whose is the prefix."""
    try:
        target = parse_url(settings.redis_url)
    except SettingsError as error:
        return [Finding(Level.FAIL, Check.REDIS, "redis_url_bad", str(error), "correct PALLAS_REDIS_URL")]
    match target.kind:
        case RedisKind.MEMORY:
            return [_memory()]
        case RedisKind.EMBEDDED:
            return await _embedded(settings, clock, running)
        case _:
            return await _server(settings, clock, target)


def _memory() -> Finding:
    missing = [name for name in ("fakeredis", "lupa") if importlib.util.find_spec(name) is None]
    if missing:
        return Finding(
            Level.FAIL,
            Check.REDIS,
            "memory_not_installed",
            f"memory:// needs {' and '.join(missing)}",
            "pip install 'pallas-cluster[memory]', or use embedded://",
            {"missing": ", ".join(missing)},
        )
    return Finding(
        Level.WARN,
        Check.REDIS,
        "memory_forgets",
        "memory:// lives inside one process and forgets everything when that ends: messages around a restart may be "
        "answered twice",
        "for a deployment that people use take embedded:// (the default) or a Redis",
    )


async def _embedded(settings: Settings, clock: Clock, running: Sequence[Process]) -> list[Finding]:
    url = find_endpoint(settings.data_dir)
    if url is not None:
        return await _server(settings, clock, parse_url(url), embedded=True)
    log = settings.data_dir / "redis" / "valkey.log"
    if any(process.ready for process in running):
        return [
            Finding(
                Level.WARN,
                Check.REDIS,
                "redis_elsewhere",
                "what runs on this data folder uses another Redis than the embedded one that these settings name",
                "give this command the PALLAS_REDIS_URL of the running deployment",
            )
        ]
    found = [await _binary()]
    if running:
        found.append(
            Finding(
                Level.FAIL,
                Check.REDIS,
                "embedded_gone",
                "the embedded server does not run, and processes of this deployment wait for it",
                f"`pallas up` and `pallas unified` start it again by themselves; if it stays away look into {log}",
                {"log": log},
            )
        )
    elif found[0].level is Level.OK:
        found.append(
            Finding(
                Level.OK,
                Check.REDIS,
                "embedded_not_running",
                "the embedded server does not run; `pallas up` or `pallas unified` starts it",
            )
        )
    return found


async def _binary() -> Finding:
    try:
        path = binary_path()
    except EmbeddedServerError as error:
        return Finding(Level.FAIL, Check.REDIS, "embedded_no_binary", str(error))
    child = await spawn(
        "valkey.version", [str(path), "--version"], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    code: int | None
    try:
        async with asyncio.timeout(_VERSION_S):
            said = await child.stdout.read(1000) if child.stdout is not None else b""
            code = await child.wait()
    except TimeoutError:
        said, code = b"", await child.stop(0)
    version = next((word[2:] for word in said.decode("utf-8", "replace").split() if word.startswith("v=")), "")
    if code != 0 or not version:
        return Finding(
            Level.FAIL,
            Check.REDIS,
            "embedded_does_not_run",
            f"the embedded server {path} does not run on this system (it ended with {code})",
            "set PALLAS_REDIS_URL to a Redis >= 7.0 or Valkey, for example redis://127.0.0.1:6379/0",
            {"path": path, "code": code},
        )
    return Finding(
        Level.OK,
        Check.REDIS,
        "embedded_binary",
        f"embedded Valkey {visible(version)} is installed",
        fields={"version": visible(version)},
    )


async def _server(settings: Settings, clock: Clock, target: RedisTarget, *, embedded: bool = False) -> list[Finding]:
    tasks = Tasks()
    redis = open_redis(target, tasks, late_ms=_LATE_MS, dead_after_ms=_DEAD_MS)
    try:
        facts = await probe(redis, clock)
        return [*_about(facts, target), *await _prefix(settings, redis)]
    except RedisError as error:
        secrets = KnownSecrets((*settings.secret_values(), target.password, target.sentinel_password))
        why = visible(secrets.redact(str(error)), _LONGEST)
        if isinstance(error, RedisRefused):
            return [_refused(settings, target, why)]
        return [_silent(settings, why) if embedded else _unreachable(settings, target, why)]
    finally:
        await redis.close()
        await tasks.stop()


def _silent(settings: Settings, why: str) -> Finding:
    folder = settings.data_dir / "redis"
    return Finding(
        Level.FAIL,
        Check.REDIS,
        "embedded_silent",
        f"the embedded server of {settings.data_dir} runs and does not answer: {why}",
        f"look into {folder / 'valkey.log'}; a full disk or a stopped process are the usual causes. `pallas up` starts "
        f"it again when its process ({folder / 'endpoint.json'} has the id) is ended",
        {"folder": settings.data_dir, "why": why},
    )


def _refused(settings: Settings, target: RedisTarget, why: str) -> Finding:
    origin = settings.origin("redis_url")
    return Finding(
        Level.FAIL,
        Check.REDIS,
        "redis_refuses",
        f"{target}: {why}",
        f"correct user and password in PALLAS_REDIS_URL (from {origin}); what is special in a URL must be %-encoded",
        {"target": target, "why": why, "origin": origin},
    )


def _unreachable(settings: Settings, target: RedisTarget, why: str) -> Finding:
    origin = settings.origin("redis_url")
    return Finding(
        Level.FAIL,
        Check.REDIS,
        "redis_unreachable",
        f"{target} cannot be used: {why}",
        f"see that the server runs and that this machine may reach its port (PALLAS_REDIS_URL, from {origin})",
        {"target": target, "why": why, "origin": origin},
    )


def _about(facts: RedisFacts, target: RedisTarget) -> list[Finding]:
    fields = _fields(facts, target)
    wrong = [
        Finding(
            Level.FAIL if problem.severity is Severity.FATAL else Level.WARN,
            Check.REDIS,
            problem.code.value,
            problem.text,
            problem.remedy,
            fields,
        )
        for problem in problems(facts)
    ]
    what = (
        f"{fields['server']} {fields['version']} at {target}: policy {fields['policy']}, AOF {fields['aof']}, memory "
        f"{fields['used']} (limit {fields['limit']}), clock {fields['offset']}, round trip {fields['round_trip']}"
    )
    return [Finding(Level.OK, Check.REDIS, "redis_answers", what, fields=fields), *wrong]


def _fields(facts: RedisFacts, target: RedisTarget) -> dict[str, object]:
    """What is said of the server, a dash where it does not tell."""
    offset = facts.clock_offset_ms
    return {
        "target": target,
        "server": facts.server or "server",
        "version": visible(facts.version or "—"),
        "missing": "; ".join(facts.missing),
        "policy": visible(facts.policy or "—"),
        "evicted": facts.evicted_keys or 0,
        "aof": "—" if facts.aof is None else "on" if facts.aof else "off",
        "used": "—" if facts.used_memory is None else megabytes(facts.used_memory),
        "limit": "—" if facts.maxmemory is None else megabytes(facts.maxmemory) if facts.maxmemory else "∞",
        "offset": "—" if offset is None else f"{offset:+.0f} ms",
        "offset_s": "—" if offset is None else f"{offset / 1000:+.1f}",
        "round_trip": f"{facts.round_trip_ms:.1f} ms",
    }


async def _prefix(settings: Settings, redis: Redis) -> list[Finding]:
    keys = Keys(settings.redis_prefix)
    marker = await redis.execute("GET", keys.deployment)
    prefix = visible(settings.redis_prefix)
    try:
        ours = settings.deployment_id or (DataDir(settings.data_dir).known_id() if settings.data_dir.is_dir() else None)
    except PallasError as error:
        return [Finding(Level.FAIL, Check.PREFIX, "deployment_id_damaged", str(error))]
    if marker is None:
        what = f"{prefix!r} is free; the first worker takes it"
        return [Finding(Level.OK, Check.PREFIX, "prefix_free", what, fields={"prefix": prefix})]
    theirs = visible(marker.decode("utf-8", "replace"), 36)
    if theirs == ours:
        what = f"{prefix!r} belongs to this deployment ({theirs[:8]}…)"
        return [Finding(Level.OK, Check.PREFIX, "prefix_ours", what, fields={"prefix": prefix, "id": theirs[:8]})]
    own = f"{ours[:8]}…" if ours else "none yet"
    return [
        Finding(
            Level.FAIL,
            Check.PREFIX,
            "prefix_foreign",
            f"{prefix!r} belongs to another deployment ({theirs[:8]}…; the id of {settings.data_dir} is {own})",
            "name that deployment's data folder with --data; if this is another machine of it, set "
            f"PALLAS_DEPLOYMENT_ID={theirs} here; or set PALLAS_REDIS_PREFIX to a name of your own",
            {"prefix": prefix, "theirs": theirs[:8], "id": theirs, "ours": own, "folder": settings.data_dir},
        )
    ]


def megabytes(number: int) -> str:
    """A number of bytes for people."""
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.1f} MiB"

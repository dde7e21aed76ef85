"""What a Redis server is and how it is set up, and what of that is a problem.

`probe` asks, `problems` judges: `pallas doctor` prints the list, a start refuses on FATAL. What a managed service
forbids to ask stays None and is never taken for good or bad.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pallas.clock import Clock
from pallas.errors import ReplyError

_TIME_SAMPLES = 3
_MAX_OFFSET_MS = 1000
_SLOW_MS = 50.0
_FULL = 0.8
_FLOOR = (7, 0)
_FEATURES = (
    ("SET … NX GET", (7, 0)),
    ("EXPIRE … NX", (7, 0)),
    ("ZMPOP, LMPOP", (7, 0)),
    ("SINTERCARD", (7, 0)),
    ("ZADD … GT, GETDEL, GETEX", (6, 2)),
)
"""What our scripts and commands need, and since which version Redis has it."""


class Executes(Protocol):
    """A client: raw RESP2 replies, errors as `pallas.errors.RedisError`."""

    async def execute(self, *command: bytes | str | int) -> Any: ...


@dataclass(slots=True, frozen=True)
class RedisFacts:
    """What the server says about itself; None where it does not say."""

    server: str | None
    """`redis`, `valkey` or `dragonfly`."""
    version: str | None
    """The server's own version."""
    compatible: tuple[int, ...] | None
    """The Redis version whose commands it offers."""
    missing: tuple[str, ...]
    """Commands of the floor that this version lacks."""
    policy: str | None
    """`maxmemory-policy`."""
    maxmemory: int | None
    """Bytes; 0 is no limit."""
    used_memory: int | None
    evicted_keys: int | None
    """Since the server started."""
    aof: bool | None
    aof_failing: bool | None
    """The last write of the append-only file failed: every write command is refused."""
    role: str | None
    """`master` or `slave`."""
    loading: bool | None
    scripting: bool | None
    clock_offset_ms: float | None
    """How far the server's clock is ahead of ours."""
    round_trip_ms: float
    """The fastest of three."""


class Severity(StrEnum):
    """What a problem means for a start."""

    FATAL = "fatal"
    WARNING = "warning"


class ProblemCode(StrEnum):
    """Stable names of what can be wrong."""

    TOO_OLD = "redis_too_old"
    VERSION_UNKNOWN = "redis_version_unknown"
    EVICTS = "redis_evicts"
    POLICY_UNKNOWN = "redis_policy_unknown"
    KEYS_EVICTED = "redis_keys_evicted"
    MEMORY_NEARLY_FULL = "redis_memory_nearly_full"
    READ_ONLY = "redis_read_only"
    LOADING = "redis_loading"
    WRITES_FAILING = "redis_writes_failing"
    NOT_DURABLE = "redis_not_durable"
    NO_SCRIPTS = "redis_no_scripts"
    CLOCK_OFF = "redis_clock_off"
    SLOW = "redis_slow"


@dataclass(slots=True, frozen=True)
class Problem:
    """One thing that is wrong: what, and what to do about it."""

    code: ProblemCode
    severity: Severity
    text: str
    remedy: str


async def probe(client: Executes, clock: Clock) -> RedisFacts:
    """Ask the server behind `client`; about five round trips.

    Raises RedisUnavailable or ReplyUnknown where it cannot be reached; a refused question only leaves a gap.
    """
    info = _info(await _asked(client, "INFO"))
    policy = info.get("maxmemory_policy") or await _setting(client, "maxmemory-policy")
    maxmemory = info.get("maxmemory") or await _setting(client, "maxmemory")
    aof = info.get("aof_enabled") or await _setting(client, "appendonly")
    compatible = _version(info.get("redis_version"))
    offset_ms, round_trip_ms = await _clock_offset(client, clock)
    return RedisFacts(
        server=_server(info),
        version=info.get("valkey_version") or info.get("dragonfly_version") or info.get("redis_version"),
        compatible=compatible,
        missing=tuple(name for name, since in _FEATURES if compatible is not None and compatible < since),
        policy=policy,
        maxmemory=_int(maxmemory),
        used_memory=_int(info.get("used_memory")),
        evicted_keys=_int(info.get("evicted_keys")),
        aof=None if aof is None else aof in {"1", "yes"},
        aof_failing=_differs(info.get("aof_last_write_status"), "ok"),
        role=info.get("role"),
        loading=_differs(info.get("loading"), "0"),
        scripting=await _scripting(client),
        clock_offset_ms=offset_ms,
        round_trip_ms=round_trip_ms,
    )


async def fatal_problems(client: Executes, clock: Clock) -> list[str]:
    """What makes this server unusable, each with its remedy; a start refuses on any. Raises as `probe`."""
    found = problems(await probe(client, clock))
    return [f"{problem.text}: {problem.remedy}" for problem in found if problem.severity is Severity.FATAL]


def problems(facts: RedisFacts) -> list[Problem]:
    """What is wrong with this server, fatal first; empty where all is well."""
    found = [*_unsuitable(facts), *_forgetful(facts), *_impaired(facts)]
    return sorted(found, key=lambda problem: problem.severity is not Severity.FATAL)


def _unsuitable(facts: RedisFacts) -> list[Problem]:
    found: list[Problem] = []
    if facts.compatible is None:
        found.append(Problem(
            ProblemCode.VERSION_UNKNOWN, Severity.WARNING,
            "the server does not tell its version",
            "make sure it is Redis >= 7.0 or Valkey, and allow this user the command INFO",
        ))  # fmt: skip
    elif facts.compatible < _FLOOR:
        found.append(Problem(
            ProblemCode.TOO_OLD, Severity.FATAL,
            f"{facts.server} {facts.version} lacks {'; '.join(facts.missing)}",
            "use Redis >= 7.0 or Valkey >= 7.2",
        ))  # fmt: skip
    if facts.scripting is False:
        found.append(Problem(
            ProblemCode.NO_SCRIPTS, Severity.FATAL,
            "the server refuses Lua scripts (EVAL)",
            "allow this user the category @scripting, or use a server that has scripts",
        ))  # fmt: skip
    if facts.role == "slave":
        found.append(Problem(
            ProblemCode.READ_ONLY, Severity.FATAL,
            "the server is a replica and takes no writes",
            "point the URL at the primary, or use redis+sentinel:// so that the primary is found",
        ))  # fmt: skip
    return found


def _forgetful(facts: RedisFacts) -> list[Problem]:
    found: list[Problem] = []
    if facts.policy is None:
        found.append(Problem(
            ProblemCode.POLICY_UNKNOWN, Severity.WARNING,
            "the server does not tell its maxmemory-policy",
            "make sure it is noeviction: an evicted claim is answered twice",
        ))  # fmt: skip
    elif facts.policy != "noeviction":
        found.append(Problem(
            ProblemCode.EVICTS, Severity.FATAL,
            f"maxmemory-policy is {facts.policy}: under memory pressure claims vanish and messages are answered twice",
            "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf or the service's console",
        ))  # fmt: skip
    if facts.evicted_keys:
        found.append(Problem(
            ProblemCode.KEYS_EVICTED, Severity.WARNING,
            f"{facts.evicted_keys} keys were evicted since the server started; decided messages may be among them",
            "set maxmemory-policy noeviction and give the server more memory; a restart of it clears the count",
        ))  # fmt: skip
    if facts.aof is False:
        found.append(Problem(
            ProblemCode.NOT_DURABLE, Severity.WARNING,
            "the append-only file is off: a restart of the server forgets claims, tasks and dead letters",
            "CONFIG SET appendonly yes, and the same in redis.conf or the service's console",
        ))  # fmt: skip
    return found


def _impaired(facts: RedisFacts) -> list[Problem]:
    found: list[Problem] = []
    if facts.aof_failing:
        found.append(Problem(
            ProblemCode.WRITES_FAILING, Severity.FATAL,
            "the server cannot write its append-only file and refuses all writes",
            "free space on its disk and look into its log; it recovers by itself then",
        ))  # fmt: skip
    if facts.loading:
        found.append(Problem(
            ProblemCode.LOADING, Severity.FATAL,
            "the server is still reading its data and answers nothing",
            "wait until it is done",
        ))  # fmt: skip
    if facts.maxmemory and facts.used_memory is not None and facts.used_memory > _FULL * facts.maxmemory:
        found.append(Problem(
            ProblemCode.MEMORY_NEARLY_FULL, Severity.WARNING,
            f"{facts.used_memory} of {facts.maxmemory} bytes (maxmemory) are in use; at the limit writes are refused",
            "raise maxmemory or give this deployment a server of its own",
        ))  # fmt: skip
    if facts.clock_offset_ms is not None and abs(facts.clock_offset_ms) > _MAX_OFFSET_MS:
        direction = "ahead of" if facts.clock_offset_ms > 0 else "behind"
        found.append(Problem(
            ProblemCode.CLOCK_OFF, Severity.WARNING,
            f"the server's clock is {abs(facts.clock_offset_ms) / 1000:.1f} s {direction} this host's",
            "run a time service (chrony, systemd-timesyncd) on both",
        ))  # fmt: skip
    if facts.round_trip_ms > _SLOW_MS:
        found.append(Problem(
            ProblemCode.SLOW, Severity.WARNING,
            f"the fastest of {_TIME_SAMPLES} round trips took {facts.round_trip_ms:.0f} ms; each message waits for one",
            "use a server in the same network",
        ))  # fmt: skip
    return found


async def _asked(client: Executes, *command: bytes | str | int) -> Any:
    """The reply, None where the server refuses the question."""
    try:
        return await client.execute(*command)
    except ReplyError:
        return None


async def _setting(client: Executes, name: str) -> str | None:
    reply = await _asked(client, "CONFIG", "GET", name)
    return _text(reply[1]) if isinstance(reply, list) and len(reply) == 2 else None


async def _scripting(client: Executes) -> bool | None:
    try:
        return bool(await client.execute("EVAL", "return 1", 0) == 1)
    except ReplyError as error:
        # Anything else (still loading, out of memory) says nothing about scripts.
        return False if error.code in {"NOPERM", "ERR"} else None


async def _clock_offset(client: Executes, clock: Clock) -> tuple[float | None, float]:
    """How far the server is ahead, and the round trip, in ms; from the fastest of three, which errs least."""
    samples: list[tuple[float, float | None]] = []
    for _ in range(_TIME_SAMPLES):
        wall_s, mono = clock.wall_s(), clock.mono()
        reply = await _asked(client, "TIME")
        round_trip_s = clock.mono() - mono
        offset_ms = None
        if isinstance(reply, list) and len(reply) == 2:
            offset_ms = (int(reply[0]) + int(reply[1]) / 1e6 - wall_s - round_trip_s / 2) * 1000
        samples.append((round_trip_s, offset_ms))
    round_trip_s, offset_ms = min(samples, key=lambda sample: sample[0])
    return offset_ms, round_trip_s * 1000


def _info(reply: Any) -> dict[str, str]:
    text = _text(reply) or ""
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value.strip() for name, mark, value in pairs if mark}


def _server(info: dict[str, str]) -> str | None:
    if "valkey_version" in info or info.get("server_name") == "valkey":
        return "valkey"
    if "dragonfly_version" in info:
        return "dragonfly"
    return "redis" if "redis_version" in info else None


def _version(text: str | None) -> tuple[int, ...] | None:
    parts = (text or "").split(".")
    return tuple(int(part) for part in parts[:3] if part.isdecimal()) if parts[0].isdecimal() else None


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _differs(value: str | None, good: str) -> bool | None:
    return None if value is None else value != good


def _text(reply: Any) -> str | None:
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "replace")
    return reply if isinstance(reply, str) else None

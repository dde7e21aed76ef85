"""What a real server says about itself, and what managed or old ones leave out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio as aio
from redis.exceptions import ResponseError

from pallas.clock import SystemClock
from pallas.errors import ReplyError, ReplyUnknown
from pallas.redis.probe import ProblemCode, RedisFacts, Severity, probe, problems

_GOOD = RedisFacts(
    server="valkey",
    version="9.1.2",
    compatible=(7, 2, 4),
    missing=(),
    policy="noeviction",
    maxmemory=0,
    used_memory=1_000_000,
    evicted_keys=0,
    aof=True,
    aof_failing=False,
    role="master",
    loading=False,
    scripting=True,
    clock_offset_ms=0.1,
    round_trip_ms=0.2,
)


class Raw:
    """redis-py without its reply parsers, with our errors."""

    def __init__(self, client: aio.Redis) -> None:
        self._client = client
        client.response_callbacks.clear()

    async def execute(self, *command: bytes | str | int) -> Any:
        try:
            return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            raise ReplyError(str(error)) from error


class Scripted:
    """A server that answers what it is told to; everything else is forbidden."""

    def __init__(self, **replies: Any) -> None:
        self.replies = replies

    async def execute(self, *command: bytes | str | int) -> Any:
        name = "_".join(str(word) for word in command[: 2 if command[0] == "CONFIG" else 1])
        reply = self.replies.get(name, ReplyError(f"NOPERM this user has no permissions to run '{name}'"))
        if isinstance(reply, Exception):
            raise reply
        return reply


class Wall(SystemClock):
    """A host whose wall clock is wrong."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def wall_s(self) -> float:
        return super().wall_s() + self._ahead_s


async def test_a_real_valkey_tells_all_there_is_to_know(redis_url: str) -> None:
    async with aio.Redis.from_url(redis_url, protocol=2) as client:
        facts = await probe(Raw(client), SystemClock())
    assert (facts.server, facts.policy, facts.role) == ("valkey", "noeviction", "master")
    assert facts.compatible is not None
    assert facts.compatible >= (7, 2)
    assert (facts.missing, facts.loading, facts.scripting, facts.evicted_keys) == ((), False, True, 0)
    assert (facts.aof, facts.aof_failing, facts.maxmemory) == (False, False, 0)
    assert facts.clock_offset_ms is not None
    assert abs(facts.clock_offset_ms) < 1000
    assert [problem.code for problem in problems(facts)] == [ProblemCode.NOT_DURABLE]


@pytest.mark.parametrize("ahead_s, code", [(5.0, "behind"), (-5.0, "ahead of")])
async def test_a_clock_that_is_off_is_named_with_its_direction(redis_url: str, ahead_s: float, code: str) -> None:
    async with aio.Redis.from_url(redis_url, protocol=2) as client:
        facts = await probe(Raw(client), Wall(ahead_s))
    assert facts.clock_offset_ms == pytest.approx(-ahead_s * 1000, abs=500)
    [problem] = [problem for problem in problems(facts) if problem.code is ProblemCode.CLOCK_OFF]
    assert f"5.0 s {code}" in problem.text


async def test_a_real_policy_that_evicts_is_fatal(redis_url: str) -> None:
    async with aio.Redis.from_url(redis_url, protocol=2) as client:
        await client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            first, *_ = problems(await probe(Raw(client), SystemClock()))
        finally:
            await client.config_set("maxmemory-policy", "noeviction")
    assert (first.code, first.severity) == (ProblemCode.EVICTS, Severity.FATAL)
    assert "allkeys-lru" in first.text
    assert "noeviction" in first.remedy


async def test_a_service_that_forbids_every_question_is_not_judged() -> None:
    facts = await probe(Scripted(EVAL=1), SystemClock())
    assert facts == RedisFacts(
        server=None,
        version=None,
        compatible=None,
        missing=(),
        policy=None,
        maxmemory=None,
        used_memory=None,
        evicted_keys=None,
        aof=None,
        aof_failing=None,
        role=None,
        loading=None,
        scripting=True,
        clock_offset_ms=None,
        round_trip_ms=facts.round_trip_ms,
    )
    assert {problem.code for problem in problems(facts)} == {
        ProblemCode.VERSION_UNKNOWN,
        ProblemCode.POLICY_UNKNOWN,
    }
    assert all(problem.severity is Severity.WARNING for problem in problems(facts))


async def test_what_info_leaves_out_is_asked_as_a_setting() -> None:
    client = Scripted(INFO=b"# Server\r\nredis_version:7.4.1\r\n", EVAL=1)
    client.replies["CONFIG_GET"] = [b"maxmemory-policy", b"volatile-lru"]
    facts = await probe(client, SystemClock())
    assert facts.policy == "volatile-lru"
    assert facts.maxmemory is None


async def test_an_old_redis_is_refused_with_what_it_lacks() -> None:
    info = b"redis_version:6.0.16\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nmaxmemory:0\r\naof_enabled:1\r\n"
    [problem] = problems(await probe(Scripted(INFO=info, EVAL=1, TIME=None), SystemClock()))
    assert (problem.code, problem.severity) == (ProblemCode.TOO_OLD, Severity.FATAL)
    assert "redis 6.0.16 lacks SET … NX GET" in problem.text


@pytest.mark.parametrize("text", ["", "abc", "7", "7.0-rc1", "..", "9" * 30])
async def test_a_strange_version_crashes_nothing(text: str) -> None:
    facts = await probe(Scripted(INFO=f"redis_version:{text}\r\n:\r\nnonsense\r\n".encode()), SystemClock())
    problems(facts)


async def test_a_server_that_cannot_be_reached_is_the_callers_business() -> None:
    with pytest.raises(ReplyUnknown):
        await probe(Scripted(INFO=ReplyUnknown("late")), SystemClock())


def test_a_good_server_has_no_problems() -> None:
    assert problems(_GOOD) == []


@pytest.mark.parametrize(
    "change, code, severity",
    [
        ({"compatible": (6, 2, 14), "missing": ("ZMPOP",)}, ProblemCode.TOO_OLD, Severity.FATAL),
        ({"compatible": None}, ProblemCode.VERSION_UNKNOWN, Severity.WARNING),
        ({"policy": "allkeys-lru"}, ProblemCode.EVICTS, Severity.FATAL),
        ({"policy": None}, ProblemCode.POLICY_UNKNOWN, Severity.WARNING),
        ({"role": "slave"}, ProblemCode.READ_ONLY, Severity.FATAL),
        ({"scripting": False}, ProblemCode.NO_SCRIPTS, Severity.FATAL),
        ({"loading": True}, ProblemCode.LOADING, Severity.FATAL),
        ({"aof_failing": True}, ProblemCode.WRITES_FAILING, Severity.FATAL),
        ({"aof": False}, ProblemCode.NOT_DURABLE, Severity.WARNING),
        ({"evicted_keys": 3}, ProblemCode.KEYS_EVICTED, Severity.WARNING),
        ({"maxmemory": 100, "used_memory": 81}, ProblemCode.MEMORY_NEARLY_FULL, Severity.WARNING),
        ({"clock_offset_ms": -1001.0}, ProblemCode.CLOCK_OFF, Severity.WARNING),
        ({"round_trip_ms": 51.0}, ProblemCode.SLOW, Severity.WARNING),
    ],
)
def test_each_fault_is_one_problem_with_a_remedy(change: dict[str, Any], code: ProblemCode, severity: Severity) -> None:
    [problem] = problems(replace(_GOOD, **change))
    assert (problem.code, problem.severity) == (code, severity)
    assert problem.text
    assert problem.remedy


def test_what_stops_a_start_comes_first() -> None:
    found = problems(replace(_GOOD, aof=False, role="slave", round_trip_ms=99.0, policy="allkeys-lru"))
    assert [problem.severity for problem in found] == [Severity.FATAL] * 2 + [Severity.WARNING] * 2

"""Whose prefix it is: one server may hold several deployments, each under a prefix of its own.

A server that would forget decisions is refused in the same breath: on it, nothing that is written counts.
"""

from __future__ import annotations

from pallas.clock import Clock
from pallas.errors import ForeignDeployment, SettingsError
from pallas.keys import Keys
from pallas.redis import Redis, fatal_problems


async def own_prefix(redis: Redis, keys: Keys, clock: Clock, ours: str) -> None:
    """Mark the prefix as the deployment `ours`. Raises SettingsError, ForeignDeployment or RedisError."""
    await _check_server(redis, clock)
    _compare(keys, await redis.execute("SET", keys.deployment, ours, "NX", "GET"), ours)


async def check_prefix(redis: Redis, keys: Keys, clock: Clock, ours: str) -> None:
    """The same without marking it: a prefix that is nobody's yet is fine."""
    await _check_server(redis, clock)
    _compare(keys, await redis.execute("GET", keys.deployment), ours)


async def _check_server(redis: Redis, clock: Clock) -> None:
    problems = await fatal_problems(redis, clock)
    if problems:
        raise SettingsError("; ".join(problems))


def _compare(keys: Keys, owner: bytes | None, ours: str) -> None:
    theirs = ours if owner is None else owner.decode(errors="replace")
    if theirs != ours:
        raise ForeignDeployment(
            f"the Redis prefix {keys.prefix!r} belongs to another deployment ({theirs[:8]}…, ours is {ours[:8]}…). "
            f"If this is another machine of the same deployment, set PALLAS_DEPLOYMENT_ID={theirs} here; if it is a "
            "deployment of its own, set another PALLAS_REDIS_PREFIX"
        )

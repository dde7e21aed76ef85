"""How a worker gets its shard id: once, or as long as it takes, saying what it waits for."""

from __future__ import annotations

import asyncio

import structlog

from pallas.errors import RedisError, RedisRefused, ShardTaken
from shard.registry import Lease

_log = structlog.get_logger()
_RETRY_S = 1.0


async def join(lease: Lease, *, forever: bool, wait_for_id: bool, said: str = "") -> bool:
    """Take the id; False where Redis does not answer and `forever` is not wanted. Raises ShardTaken or RedisRefused.

    `wait_for_id`: an id that another worker holds is waited for. `said` is what was logged before: `redis` or `taken`.
    """
    while True:
        try:
            await lease.take()
        except RedisRefused:
            raise
        except RedisError as error:
            if not said:
                _log.warning("redis.waiting", error=str(error), hint="this worker goes on by itself once Redis answers")
            said = "redis"
            if not forever:
                return False
        except ShardTaken as error:
            if not wait_for_id:
                raise
            if said != "taken":
                _log.warning(
                    "lease.waiting",
                    detail=error.waiting,
                    hint="this worker goes on by itself once the other has let go or its lease has lapsed",
                )
            said = "taken"
        else:
            return True
        await asyncio.sleep(_RETRY_S)

"""A process's way to its Redis, as its settings name it.

`embedded://` names a server that another process of this machine owns; it is found through the data folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pallas.errors import RedisError, RedisRefused, SettingsError
from pallas.redis import EmbeddedServer, Redis, RedisKind, RedisTarget, find_endpoint, open_redis, parse_url
from pallas.tasks import Tasks

if TYPE_CHECKING:
    from pallas.settings import Settings


@contextlib.asynccontextmanager
async def connected(settings: Settings, target: RedisTarget | None = None) -> AsyncIterator[Redis]:
    """An open client, closed at the end; nothing is asked of the server yet.

    Raises SettingsError where the embedded server of the data folder does not run.
    """
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


def refuse_memory(settings: Settings, what: str) -> None:
    """Raise SettingsError where `what`, one process of several, would have a Redis that no other can see."""
    if parse_url(settings.redis_url).kind is RedisKind.MEMORY:
        raise SettingsError(
            f"PALLAS_REDIS_URL: memory:// lives inside one process, and {what} needs one that several share: messages "
            "would be answered twice. Run `pallas unified` with it, or leave PALLAS_REDIS_URL unset"
        )


async def check_admitted(redis: Redis) -> None:
    """Raise RedisRefused where the server is there and refuses us; one that is away may come later."""
    try:
        await redis.execute("PING")
    except RedisRefused:
        raise
    except RedisError:
        return


def own_server(settings: Settings) -> EmbeddedServer | None:
    """The server that a process with these settings starts and owns; None where Redis runs elsewhere."""
    return EmbeddedServer(settings.data_dir) if parse_url(settings.redis_url).kind is RedisKind.EMBEDDED else None

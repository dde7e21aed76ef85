"""Connections to whichever server the sentinels call the primary, asked again at each connect.

Only what redis-py's own pool does not do stands here: each sentinel gets its share of the time, none is asked twice
in a row, and nothing stays open to them in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import redis.asyncio as aio
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from pallas.redis.url import RedisTarget


class _Primary(aio.SentinelConnectionPool):
    """Finds the primary; one look-up at a time, whose connections are closed with it."""

    def __init__(self, service: str, sentinels: aio.Sentinel, **options: Any) -> None:
        super().__init__(service, sentinels, **options)  # type: ignore[no-untyped-call]
        self._sentinels = sentinels
        self._asking = asyncio.Lock()

    async def get_master_address(self) -> tuple[str, int]:
        async with self._asking:
            try:
                address: tuple[str, int] = await super().get_master_address()  # type: ignore[no-untyped-call]
                return address
            finally:
                for client in self._sentinels.sentinels:
                    await client.connection_pool.disconnect()


def primary_connections(
    target: RedisTarget, options: dict[str, Any], timeout_s: float
) -> Callable[[], AbstractConnection]:
    """Makes connections that look for the primary of `target` when they connect, within `timeout_s` in all."""
    # A sentinel whose host is gone answers nothing at all: the others must still be asked in time.
    share_s = timeout_s / (len(target.hosts) + 1)
    asked = {
        "username": target.sentinel_username or None,
        "password": target.sentinel_password or None,
        "socket_timeout": share_s,
        "socket_connect_timeout": share_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    sentinels = aio.Sentinel(list(target.hosts), sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
    make: Callable[[], AbstractConnection] = _Primary(
        target.service, sentinels, ssl=target.tls, **options
    ).make_connection
    return make

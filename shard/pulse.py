"""What a worker tells of itself over and over: its counters in Redis, and how late its own loops run."""

from __future__ import annotations

import asyncio
import json
import time

from pallas.clock import Clock
from pallas.keys import WORKER_TTL_S, Keys
from pallas.metrics import Meters
from pallas.redis import Redis
from shard.registry import Lease
from shard.runner import Runner

_LAG_S = 0.25


class Pulse:
    """One worker's own signs of life."""

    def __init__(self, redis: Redis, keys: Keys, lease: Lease, meters: Meters, runner: Runner, clock: Clock) -> None:
        self._redis = redis
        self._keys = keys
        self._lease = lease
        self._meters = meters
        self._runner = runner
        self._clock = clock
        self._rtt_ms: float | None = None

    async def publish(self) -> None:
        """Write this worker's counters where the hub and the commands find them. Raises RedisError."""
        if not self._lease.epoch:
            return
        meters, began = self._meters, self._clock.mono()
        report = {
            "epoch": self._lease.epoch,
            "books": meters.books(),
            "links": meters.links,
            "loop_lag_ms": round(meters.loop_lag_s * 1000, 2),
            "redis_rtt_ms": self._rtt_ms,
        }
        key = self._keys.worker(self._lease.shard_id)
        await self._redis.execute("SET", key, json.dumps(report), "EX", WORKER_TTL_S, "GET")
        self._rtt_ms = round((self._clock.mono() - began) * 1000, 2)

    async def watch(self) -> None:
        """Measure the loops' lag and hold handlers to their time limit, for ever."""
        while True:
            due = time.monotonic() + _LAG_S
            await asyncio.sleep(_LAG_S)
            self._meters.loop_lag_s = max(0.0, time.monotonic() - due)
            self._runner.watch()

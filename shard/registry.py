"""The worker's lease on its shard id, and the epoch that goes with it.

An epoch that lapsed is dead for good: a worker that may have overslept its lease, by its own suspend-aware clock, gives
up all it held and takes a new epoch. Two live workers never share an id (`lease_take.lua`).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from pallas.clock import Clock
from pallas.errors import LeaseLost, RedisError, ShardTaken
from pallas.keys import LEASES_TTL_MS, Keys
from pallas.redis import Redis, script

_log = structlog.get_logger()
_TOKEN = struct.Struct(">HLL").pack
_RETRY_S = 0.3
MARGIN = 0.1
"""Share of the lease's life that a worker gives up early, so that it stops before Redis frees the id."""


class Lease:
    """One worker's hold on one shard id.

    `before` is asked each time before a lease is taken, and may refuse by raising: a server that lost its data may be
    another deployment's by now. `info` gives what is published beside the lease (pid, host, where it listens …), asked
    at each renewal.
    """

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        clock: Clock,
        *,
        shard_id: int | None,
        life_s: float,
        info: Callable[[], Mapping[str, Any]],
        lost: Callable[[], None] = lambda: None,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._clock = clock
        self._life_s = life_s
        self._info = info
        self._lost = lost
        self._before = before
        self._fixed = shard_id
        self.shard_id = shard_id if shard_id is not None else -1
        self.epoch = 0
        self._valid_until = 0.0
        self._nonce = 0
        self._attempt = secrets.token_hex(8)
        self._stale_epoch = 0
        self._last_epoch = 0
        self._is_held = asyncio.Event()

    def token(self) -> bytes:
        """A token no other attempt has. Raises LeaseLost while no lease is held."""
        if self._clock.mono() >= self._valid_until:
            self._drop()
            raise LeaseLost(f"shard {self.shard_id} holds no lease at the moment")
        self._nonce = (self._nonce + 1) & 0xFFFFFFFF
        return _TOKEN(self.shard_id, self.epoch, self._nonce)

    def allows(self, token: bytes) -> bool:
        """Whether the token's epoch is still ours and surely has not lapsed."""
        if self._clock.mono() >= self._valid_until:
            self._drop()
            return False
        return int.from_bytes(token[2:6], "big") == self.epoch

    async def held(self) -> None:
        """Wait until a lease is held."""
        while self._clock.mono() >= self._valid_until:
            self._drop()
            await self._is_held.wait()

    def is_held(self) -> bool:
        """Whether a lease is held that surely has not lapsed."""
        return self._clock.mono() < self._valid_until

    async def take(self) -> None:
        """Take the id once. Raises ShardTaken while another lives, RedisError where Redis does not answer."""
        if self._before is not None:
            await self._before()
        started = self._clock.mono()
        take = script("lease_take")
        wanted = "" if self._fixed is None and self.shard_id < 0 else self.shard_id
        reply = await self._redis.run(
            take,
            take.named(
                leases=self._keys.leases,
                epoch=self._keys.epoch,
                shard=wanted,
                life_ms=int(self._life_s * 1000),
                keep_ms=LEASES_TTL_MS,
                attempt=self._attempt,
                after=self._last_epoch,
                info=self._encoded(),
            ),
        )
        taken, shard, detail = int(reply[0]), int(reply[1]), reply[2].decode(errors="replace")
        if shard > 255:
            raise ShardTaken("all 256 shard ids are leased: stop a worker, or give this one its own --shard-id")
        if not taken:
            raise _taken(self._keys, shard, detail)
        self.shard_id = shard
        self.epoch = self._last_epoch = int(detail)
        self._nonce = secrets.randbits(32)
        self._attempt = secrets.token_hex(8)
        self._valid_until = started + self._life_s * (1 - MARGIN)
        self._is_held.set()
        _log.info("lease.taken", shard_id=shard, epoch=self.epoch)

    async def keep(self) -> None:
        """Renew for ever; after a lapse, take a new epoch under the same id.

        Raises ShardTaken where the id is another worker's by then: this one would stay deaf.
        """
        pause = self._life_s / 3
        while True:
            await asyncio.sleep(pause)
            pause = self._life_s / 3
            try:
                if self._clock.mono() >= self._valid_until:
                    await self._start_over()
                else:
                    await self._renew()
            except RedisError as error:
                # The lease goes on running: asked again soon, for a pause of Redis need not cost it.
                pause = min(_RETRY_S, self._life_s / 10)
                _log.warning("lease.unreachable", shard_id=self.shard_id, error=str(error))

    async def _renew(self) -> None:
        started, epoch = self._clock.mono(), self.epoch
        renew = script("lease_renew")
        reply = await self._redis.run(
            renew,
            renew.named(
                leases=self._keys.leases,
                given=self._keys.epoch,
                shard=self.shard_id,
                epoch=epoch,
                life_ms=int(self._life_s * 1000),
                keep_ms=LEASES_TTL_MS,
                info=self._encoded(),
            ),
        )
        if reply:
            # A server that forgets everything must not give out an epoch that anybody of us has had.
            self._last_epoch = max(self._last_epoch, int(reply))
        if reply and self.epoch == epoch:
            self._valid_until = started + self._life_s * (1 - MARGIN)
            return
        if reply:
            # It came after we had given the epoch up by our own clock: a dead epoch stays dead.
            await self._start_over()
            return
        _log.warning("lease.lost", shard_id=self.shard_id, epoch=epoch)
        self._valid_until = 0.0
        self._drop()
        await self.take()

    async def _start_over(self) -> None:
        """Give up what may still stand in Redis under an epoch we no longer trust, and take a new one."""
        self._drop()
        if self._stale_epoch:
            await self._free(self._stale_epoch)
            self._stale_epoch = 0
        await self.take()

    def _drop(self) -> None:
        if self.epoch:
            self._stale_epoch, self.epoch = self.epoch, 0
            self._is_held.clear()
            self._lost()

    async def release(self) -> None:
        """Free the id at once, so that a successor need not wait."""
        self._valid_until = 0.0
        self._drop()
        if self._stale_epoch:
            await self._free(self._stale_epoch)

    async def _free(self, epoch: int) -> None:
        release = script("lease_release")
        await self._redis.run(release, release.named(leases=self._keys.leases, shard=self.shard_id, epoch=epoch))

    def _encoded(self) -> str:
        return json.dumps(dict(self._info()), ensure_ascii=False, separators=(",", ":"))


def read_lease(record: bytes) -> tuple[int, int, dict[str, Any]]:
    """Epoch, end in Redis milliseconds and info of a stored lease. Raises ValueError on foreign data."""
    epoch, until, _, info = record.decode().split("|", 3)
    try:
        facts = json.loads(info)
    except RecursionError as error:
        raise ValueError("a lease's info is nested too deep") from error
    if not isinstance(facts, dict):
        raise ValueError("a lease's info is no object")
    return int(epoch), int(until), facts


def _taken(keys: Keys, shard: int, record: str) -> ShardTaken:
    try:
        _, _, info = read_lease(record.encode())
    except ValueError:
        return ShardTaken(
            f"shard id {shard} cannot be leased: field {shard} of the Redis hash {keys.leases} holds a foreign value, "
            "which is left alone. Remove it, or give this worker another --shard-id"
        )
    who = f"pid {info.get('pid', '?')} on {info.get('host', '?')}"
    return ShardTaken(
        f"shard id {shard} is leased to another worker ({who}). Give this worker another --shard-id, or leave it out "
        "to take the lowest free one. If that one was killed, --wait lets this one wait until its lease has lapsed.",
        waiting=f"the lease of shard {shard} ({who}) has not lapsed yet",
    )

"""Which accounts are ours: configured, connected now, or connected at any time to any worker of this deployment.

A message that one of ours wrote is nobody's to answer, else two bots talk to each other for ever; accounts that are
offline count as well, for as long as the register keeps them. The look-up is in memory; Redis is asked on a timer and
told at each connect.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable

import structlog

from pallas.clock import Clock
from pallas.keys import FLEET_TTL_S, Keys
from pallas.redis import Redis, script
from shard.roster import Account

_log = structlog.get_logger()
_FORGET_S = 3600.0


class Fleet:
    """The accounts of this deployment, as this worker knows them."""

    def __init__(self, redis: Redis, keys: Keys, clock: Clock, configured: Iterable[str]) -> None:
        self._redis = redis
        self._keys = keys
        self._clock = clock
        self._known: dict[str, float] = dict.fromkeys(configured, math.inf)
        """When each was connected last, as far as this worker knows, Unix seconds; never too long ago if configured."""
        self._forget_due = 0.0

    def __contains__(self, user_id: str) -> bool:
        return user_id in self._known

    def __len__(self) -> int:
        return len(self._known)

    def add(self, bot_id: str) -> None:
        """An account connected here; it is ours from this moment on."""
        self._learn(bot_id, self._clock.wall_s())

    async def announce(self, accounts: Iterable[Account]) -> None:
        """Tell the other workers, and whoever looks later, of accounts that are connected here."""
        now = int(self._clock.wall_s())
        fields: list[str] = []
        for account in accounts:
            last = {"seen": now, "nickname": account.nickname, "end": account.end.value, "version": account.version}
            fields += (account.bot_id, json.dumps(last, ensure_ascii=False, separators=(",", ":")))
        if fields:
            # In one write: an answer that comes late must not keep the second from being sent.
            await asyncio.gather(
                self._redis.submit("HSET", self._keys.fleet, *fields),
                self._redis.submit("EXPIRE", self._keys.fleet, FLEET_TTL_S),
            )

    async def refresh(self) -> None:
        """Learn what other workers announced; once an hour, forget who was not seen for as long as they are kept."""
        wall_s = self._clock.wall_s()
        for name in await self._redis.execute("HKEYS", self._keys.fleet):
            self._known.setdefault(name.decode(errors="replace"), wall_s)
        now = self._clock.mono()
        if now >= self._forget_due:
            self._forget_due = now + _FORGET_S
            await self.forget()

    async def forget(self) -> None:
        """Take accounts out of the register that no worker has had for as long as it keeps them.

        The register as a whole never ages while any account is connected. What cannot be read is left alone. This
        worker forgets an account as well, but none that Redis merely lost: only its own age counts.
        """
        server_s = int((await self._redis.execute("TIME"))[0])
        flat = await self._redis.execute("HGETALL", self._keys.fleet)
        listed = set()
        call = script("fleet_forget")
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            bot_id, seen = name.decode(errors="replace"), _seen(value)
            listed.add(bot_id)
            if seen is None:
                continue
            self._learn(bot_id, min(server_s, seen))
            if server_s - seen <= FLEET_TTL_S:
                continue
            if await self._redis.run(call, call.named(fleet=self._keys.fleet, account=name, value=value)):
                _log.info("fleet.forgotten", bot_id=bot_id, seen_at=seen)
        for bot_id in [one for one, seen in self._known.items() if server_s - seen > FLEET_TTL_S and one not in listed]:
            del self._known[bot_id]

    def _learn(self, bot_id: str, seen: float) -> None:
        if self._known.get(bot_id) != math.inf:
            self._known[bot_id] = seen


def _seen(value: bytes) -> float | None:
    try:
        last = json.loads(value)
    except (ValueError, RecursionError):
        return None
    seen = last.get("seen") if isinstance(last, dict) else None
    return seen if isinstance(seen, int | float) else None

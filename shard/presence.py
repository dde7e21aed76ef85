"""Which accounts are connected where, as the hub and the other workers see it.

A worker writes only entries of its own epoch: on connect, on disconnect and on a timer, so that a hash that was lost
is whole again after one beat. What nobody refreshed for the purge time, by Redis time, is removed by any worker. Where
two workers have an account, the one with the newer link is shown; a foreign value is told and left alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from pallas.keys import PRESENCE_TTL_S, Keys
from pallas.redis import Redis, script
from shard.registry import Lease
from shard.roster import Account, Roster

_log = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class Presence:
    """A stored entry; times are Unix seconds, `seen_at` the server's."""

    bot_id: str
    epoch: int
    connected_at: float
    seen_at: float
    record: dict[str, Any]


class PresenceBook:
    """The presence entries of one worker's accounts."""

    def __init__(self, redis: Redis, keys: Keys, lease: Lease, roster: Roster, *, purge_s: float) -> None:
        self._redis = redis
        self._keys = keys
        self._lease = lease
        self._roster = roster
        self._purge_ms = int(purge_s * 1000)
        self._leaving = False
        self._owed: set[str] = set()
        """Accounts that left while Redis did not take it."""
        self._hidden: dict[str, str] = {}
        """Accounts whose entry is not ours to write, and what was said of it: once, not at each beat."""
        self._put = script("presence_put")
        self._drop = script("presence_drop")

    async def put(self, account: Account) -> None:
        """Write one account's entry now."""
        if not self._lease.epoch or self._leaving:
            return
        linked = bool(account.links)
        written = await self._redis.run(
            self._put,
            self._put.named(
                presence=self._keys.presence,
                account=account.bot_id,
                epoch=self._lease.epoch,
                connected_ms=int(max((link.opened_at for link in account.links), default=account.connected_at) * 1000),
                purge_ms=self._purge_ms,
                keep_s=PRESENCE_TTL_S,
                record=json.dumps(self._record(account), ensure_ascii=False, separators=(",", ":")),
            ),
        )
        if written == 1:
            self._hidden.pop(account.bot_id, None)
        elif written == 0:
            self._tell("presence.newer_elsewhere", account.bot_id)
        else:
            hint = "its account is not shown as connected; remove this field of the hash if nobody needs it"
            self._tell("presence.foreign_value", account.bot_id, key=self._keys.presence, hint=hint)
        if linked and not account.links:
            # It left meanwhile, and a script that Redis had to be sent anew may have overtaken its removal.
            await self.drop(account.bot_id)

    async def drop(self, bot_id: str) -> None:
        """Remove an account's entry, if this epoch wrote it."""
        self._hidden.pop(bot_id, None)
        if self._lease.epoch:
            self._owed.add(bot_id)
            await self._dropped(bot_id, str(self._lease.epoch))
            self._owed.discard(bot_id)
        account = self._roster.get(bot_id)
        if account is not None and account.links:
            await self.put(account)

    async def refresh(self) -> None:
        """Write every connected account's entry again, and remove what could not be removed when it left."""
        gone = [bot_id for bot_id in self._owed if bot_id not in self._roster]
        self._owed.clear()
        await asyncio.gather(*(self.put(account) for account in list(self._roster)), *map(self.drop, gone))

    async def purge(self) -> None:
        """Remove entries that nobody refreshed for the purge time."""
        server_s, _ = await self._redis.execute("TIME")
        for presence in await read_presence(self._redis, self._keys):
            if (int(server_s) - presence.seen_at) * 1000 > self._purge_ms and await self._dropped(presence.bot_id, ""):
                _log.warning("presence.purged", bot_id=presence.bot_id, shard_id=presence.record.get("shard_id"))

    async def clear(self, bot_ids: Iterable[str]) -> None:
        """Remove the entries of these accounts, on the way out; nothing is written after that."""
        self._leaving = True
        await asyncio.gather(*(self.drop(bot_id) for bot_id in bot_ids))

    def _tell(self, event: str, bot_id: str, **fields: str) -> None:
        if self._hidden.get(bot_id) != event:
            self._hidden[bot_id] = event
            _log.warning(event, bot_id=bot_id, **fields)

    async def _dropped(self, bot_id: str, epoch: str) -> bool:
        drop = self._drop.named(presence=self._keys.presence, account=bot_id, epoch=epoch, purge_ms=self._purge_ms)
        return bool(await self._redis.run(self._drop, drop))

    def _record(self, account: Account) -> dict[str, Any]:
        link = account.speaker() or (account.links[-1] if account.links else None)
        return {
            "qq": account.bot_id,
            "shard_id": self._lease.shard_id,
            "connection_key": f"{self._lease.shard_id}:{self._lease.epoch}:{link.number if link else 0}",
            "adapter": "onebot.v11",
            "nickname": account.nickname[:200],
            "end": account.end.value,
            "end_version": account.version,
            "links": len(account.links),
            "online": account.online,
            "heartbeat_at": account.heartbeat_at,
            "last_event_at": account.last_event_at,
            "last_sent_at": account.last_sent_at,
            "reconnects": account.reconnects,
            "conduct": self._roster.conducts[account.bot_id].as_dict(),
        }


async def read_presence(redis: Redis, keys: Keys) -> list[Presence]:
    """Every stored entry, live or not; foreign values are left out."""
    flat = await redis.execute("HGETALL", keys.presence)
    entries = []
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        try:
            epoch, connected_ms, seen_ms, text = value.decode().split("|", 3)
            record = json.loads(text)
            if not isinstance(record, dict):
                raise ValueError("a presence record is no object")
            entries.append(Presence(name.decode(), int(epoch), int(connected_ms) / 1000, int(seen_ms) / 1000, record))
        except (ValueError, RecursionError):
            _log.warning("presence.foreign_value", key=keys.presence, bot_id=name.decode(errors="replace"))
    return entries

"""The deployment as Redis shows it: what the hub's pages and the commands read.

An account is `unknown`, not offline, where the worker that should know of it is gone: nobody has seen it leave.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from typing import Any

import structlog

from pallas.clock import Clock
from pallas.errors import RedisError, ReplyError
from pallas.keys import BUCKETS, READY_TTL_S, Keys, account_of, group_of
from pallas.model import Reason
from pallas.redis import Redis, script
from shard.conduct import read_conduct
from shard.presence import Presence, read_presence
from shard.registry import read_lease
from shard.view import (
    Books,
    BotReason,
    BotRow,
    BotState,
    Counters,
    DeadRow,
    EndedBook,
    Readiness,
    ShardRow,
    ShardState,
    WorkerBook,
)

_log = structlog.get_logger()
_LAPSED_SHOWN_S = 3600.0
_OPEN_LOOKED_AT = 10_000


class RedisView:
    """A `ClusterView` on Redis; `name` is the process that looks."""

    def __init__(self, redis: Redis, keys: Keys, clock: Clock, *, name: str, purge_s: float) -> None:
        # A look is no claim: where Redis is slow it is better late than none.
        self._redis = redis.patient
        self._keys = keys
        self._clock = clock
        self._name = name
        self._purge_s = purge_s

    async def bots(self) -> list[BotRow]:
        """Every account that was ever connected, with what is known of it now."""
        now_s, present, leases, fleet = await asyncio.gather(
            self._now(), read_presence(self._redis, self._keys), self._leases(), self._fleet()
        )
        live = {epoch for epoch, until, _ in leases.values() if until > now_s}
        rows = [self._present(presence, live, now_s) for presence in present]
        shown = {row.self_id for row in rows}
        rows += [_absent(bot_id, last) for bot_id, last in fleet.items() if bot_id not in shown]
        return sorted(rows, key=lambda row: (len(row.self_id), row.self_id))

    async def shards(self) -> list[ShardRow]:
        """Every worker whose lease stands or lapsed within the hour."""
        now_s, leases = await asyncio.gather(self._now(), self._leases())
        shown = {shard: lease for shard, lease in leases.items() if lease[1] > now_s - _LAPSED_SHOWN_S}
        published = await self._published(shown)
        return [
            _shard(shard, epoch, until - now_s, info, published.get(shard, {}))
            for shard, (epoch, until, info) in sorted(shown.items())
        ]

    async def books(self) -> Books:
        """Both sides of the ledger; Redis's side bucket by bucket, each in one step."""
        read = script("books_read")
        commands = []
        for number in range(BUCKETS):
            bucket = self._keys.bucket_keys(number)
            call = read.named(books=bucket.books, open=bucket.open, limit=_OPEN_LOOKED_AT, living=b"", own=b"")
            commands.append(call)
        now_s, leases, *answers = await asyncio.gather(
            self._now(), self._leases(), *(self._redis.run(read, command) for command in commands)
        )
        live = {shard: lease for shard, lease in leases.items() if lease[1] > now_s}
        published = await self._published(live)
        epochs = {epoch for epoch, _, _ in live.values()}
        counts: dict[str, int] = {}
        is_open = orphaned = off = 0
        for flat, number, tokens, _ in answers:
            here = {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}
            for name, count in here.items():
                counts[name] = counts.get(name, 0) + count
            off += abs(_ended(here, number).difference)
            is_open += number
            orphaned += sum(int.from_bytes(token[2:6], "big") not in epochs for token in tokens)
        workers = tuple(
            WorkerBook(str(shard), lease[0], _counters(published[shard]))
            for shard, lease in sorted(live.items())
            if published.get(shard, {}).get("epoch") == lease[0]
        )
        return Books(self._clock.wall_s(), workers, replace(_ended(counts, is_open), off=off), orphaned)

    async def dead(self) -> list[DeadRow]:
        """What ended as dead and is kept in the list, the latest first; what is no row of ours is passed over."""
        keys = [self._keys.bucket_keys(number).dead for number in range(BUCKETS)]
        answers = await asyncio.gather(*(self._redis.execute("HVALS", key) for key in keys), return_exceptions=True)
        rows: list[DeadRow] = []
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, ReplyError):
                # A foreign value in one bucket's place must not hide the others.
                _log.warning("dead.foreign_value", key=key, error=str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                rows += self._dead_of(key, answer)
        return sorted(rows, key=lambda row: (row.at, row.said_at or 0.0), reverse=True)

    @staticmethod
    def _dead_of(key: str, values: list[bytes]) -> list[DeadRow]:
        rows = []
        for value in values:
            try:
                rows.append(_dead(value))
            except (ValueError, TypeError):
                _log.warning("dead.foreign_value", key=key)
        return rows

    async def ready(self) -> Readiness:
        """One scripted write, timed."""
        write = script("ready_write")
        began = self._clock.mono()
        try:
            await self._redis.run(write, write.named(ready=self._keys.ready(self._name), life_s=READY_TTL_S))
        except RedisError as error:
            _log.debug("view.not_ready", error=str(error))
            return Readiness(ready=False, reason="redis_unavailable", round_trip_ms=None)
        return Readiness(ready=True, reason="ok", round_trip_ms=(self._clock.mono() - began) * 1000)

    def _present(self, presence: Presence, live: set[int], now_s: float) -> BotRow:
        record = presence.record
        if presence.epoch not in live:
            state, reason = BotState.UNKNOWN, BotReason.SHARD_LAPSED
        elif now_s - presence.seen_at > self._purge_s:
            state, reason = BotState.UNKNOWN, BotReason.PRESENCE_STALE
        elif record.get("online") is False:
            state, reason = BotState.OFFLINE, BotReason.END_SAYS_OFFLINE
        else:
            state, reason = BotState.ONLINE, BotReason.CONNECTED
        return BotRow(
            self_id=presence.bot_id,
            nickname=str(record.get("nickname") or ""),
            shard_id=str(record.get("shard_id", "")),
            epoch=presence.epoch,
            state=state,
            reason=reason,
            end=str(record.get("end") or "unknown"),
            end_version=str(record.get("end_version") or ""),
            connection_key=str(record.get("connection_key") or ""),
            adapter=str(record.get("adapter") or ""),
            links=int(record.get("links") or 0),
            heartbeat_online=record.get("online"),
            connected_at=presence.connected_at or None,
            last_seen_at=presence.seen_at,
            last_event_at=record.get("last_event_at") or None,
            last_sent_at=record.get("last_sent_at") or None,
            conduct=read_conduct(record.get("conduct")),
        )

    async def _now(self) -> float:
        seconds, micros = await self._redis.execute("TIME")
        return int(seconds) + int(micros) / 1e6

    async def _leases(self) -> dict[int, tuple[int, float, dict[str, Any]]]:
        flat = await self._redis.execute("HGETALL", self._keys.leases)
        found = {}
        for shard, record in zip(flat[::2], flat[1::2], strict=True):
            try:
                epoch, until_ms, info = read_lease(record)
                found[int(shard)] = (epoch, until_ms / 1000, info)
            except (ValueError, UnicodeDecodeError):
                _log.warning("lease.foreign_value", key=self._keys.leases)
        return found

    async def _fleet(self) -> dict[str, dict[str, Any]]:
        flat = await self._redis.execute("HGETALL", self._keys.fleet)
        return {name.decode(): _json(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}

    async def _published(self, shards: dict[int, Any]) -> dict[int, dict[str, Any]]:
        values = await asyncio.gather(*(self._redis.execute("GET", self._keys.worker(shard)) for shard in shards))
        return {shard: _json(value) for shard, value in zip(shards, values, strict=True) if value is not None}


def _json(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _dead(value: bytes) -> DeadRow:
    """The row that `pallas.endings.abandoning` wrote. Raises ValueError or TypeError on foreign data."""
    note = _json(value[1:])
    if value[:1] not in {b"c", b"e"} or not note:
        raise ValueError("no row of a message that ended as dead")
    space, at = str(note.get("space") or ""), float(note.get("at") or 0)
    if not math.isfinite(at):
        raise ValueError("no time")
    return DeadRow(
        at=at,
        said_at=float(note.get("said_at") or 0) or None,
        reason=(Reason.SENT_UNKNOWN if value[:1] == b"e" else Reason.HOLDER_LOST).value,
        cause=str(note.get("cause") or ""),
        group_id=group_of(space),
        shard_id=str(note.get("shard_id") or ""),
        epoch=int(note.get("epoch") or 0),
        bot_id=str(note.get("bot_id") or account_of(space)),
        handler=str(note.get("handler") or ""),
        space=space,
    )


def _counters(published: dict[str, Any]) -> Counters:
    books = published.get("books") or {}
    return Counters(
        arrived=int(books.get("arrived", 0)),
        refused=books.get("refused", {}),
        copies=books.get("copies", {}),
        ignored=int(books.get("ignored", 0)),
        distinct=int(books.get("distinct", 0)),
        pending=int(books.get("pending", 0)),
        taken_over=int(books.get("taken_over", 0)),
        outcomes=books.get("outcomes", {}),
        released=books.get("released", {}),
        running=int(books.get("running", 0)),
        standby=int(books.get("standby", 0)),
        orphans=books.get("orphans", {}),
    )


def _shard(shard: int, epoch: int, left_s: float, info: dict[str, Any], published: dict[str, Any]) -> ShardRow:
    fresh = published if published.get("epoch") == epoch else {}
    return ShardRow(
        shard_id=str(shard),
        epoch=epoch,
        state=ShardState.LIVE if left_s > 0 else ShardState.LAPSED,
        lease_left_s=left_s,
        pid=int(info.get("pid", 0)),
        host=str(info.get("host", "")),
        address=f"{info.get('listen', '')}:{int(info.get('base_port', 0)) + shard}",
        app=str(info.get("app", "")),
        version=str(info.get("version", "")),
        started_at=info.get("started_at"),
        links=int(fresh.get("links", 0)),
        counters=_counters(fresh),
        loop_lag_ms=fresh.get("loop_lag_ms"),
        redis_rtt_ms=fresh.get("redis_rtt_ms"),
    )


def _absent(bot_id: str, last: dict[str, Any]) -> BotRow:
    return BotRow(
        self_id=bot_id,
        nickname=str(last.get("nickname") or ""),
        shard_id="",
        epoch=0,
        state=BotState.OFFLINE,
        reason=BotReason.LINK_CLOSED,
        end=str(last.get("end") or "unknown"),
        end_version=str(last.get("version") or ""),
        connection_key="",
        adapter="",
        links=0,
        heartbeat_online=None,
        connected_at=None,
        last_seen_at=last.get("seen"),
        last_event_at=None,
        last_sent_at=None,
    )


def _ended(counts: dict[str, int], is_open: int) -> EndedBook:
    split: dict[str, dict[str, int]] = {"yielded": {}, "dropped": {}, "dead": {}}
    handled = 0
    for name, count in counts.items():
        outcome, _, reason = name.partition(":")
        if outcome == "handled":
            handled += count
        elif outcome in split:
            split[outcome][reason or "ok"] = count
    return EndedBook(
        distinct=counts.get("distinct", 0),
        handled=handled,
        yielded=split["yielded"],
        dropped=split["dropped"],
        dead=split["dead"],
        open=is_open,
    )

"""What a look at the deployment shows, as JSON: what the hub's API answers and `--json` prints, and back again.

Field names and types are a contract with programs of other people: ids are strings, times Unix seconds, text from
outside is made harmless. Reading back accepts what a hub of this version writes, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pallas.addresses import reachable
from pallas.untrusted import visible
from shard.conduct import read_conduct
from shard.view import (
    Books,
    BotReason,
    BotRow,
    BotState,
    Counters,
    DeadRow,
    EndedBook,
    ShardRow,
    ShardState,
    WorkerBook,
)

DEAD_LISTED = 20
"""So many of the dead stand beside the books; all of them are `dead_json`'s."""
_LONGEST_ADDRESS = 255
_WORST_FIRST = {state: rank for rank, state in enumerate((BotState.OFFLINE, BotState.UNKNOWN, BotState.ONLINE))}


def worst_first(rows: Sequence[BotRow]) -> list[BotRow]:
    """The accounts, those that need a look first, then by id."""
    return sorted(rows, key=lambda row: (_WORST_FIRST[row.state], len(row.self_id), row.self_id, row.shard_id))


def counts_json(rows: Sequence[BotRow]) -> dict[str, int]:
    """How many accounts are in which state."""
    return {state.value: sum(row.state is state for row in rows) for state in BotState}


def bots_json(rows: Sequence[BotRow]) -> dict[str, object]:
    """The accounts and how many are in which state."""
    return {"counts": counts_json(rows), "bots": [_bot_json(row) for row in worst_first(rows)]}


def shards_json(rows: Sequence[ShardRow], onebot_path: str) -> dict[str, object]:
    """The workers in the order of their ids."""
    ordered = sorted(rows, key=lambda row: (len(row.shard_id), row.shard_id, row.epoch))
    return {"shards": [_shard_json(row, onebot_path) for row in ordered]}


def books_json(books: Books, dead: Sequence[DeadRow] = ()) -> dict[str, object]:
    """Both sides of the ledger, per worker and in all, and the latest of what is kept of the dead, latest first."""
    return {
        "as_of": books.as_of,
        "balanced": books.balanced,
        "difference": books.difference,
        "unaccounted": books.unaccounted,
        "total": counters_json(books.total),
        "workers": [
            {"shard_id": visible(book.shard_id), "epoch": book.epoch, **counters_json(book.counters)}
            for book in books.workers
        ],
        "ended": _ended_json(books.ended),
        "dead_kept": len(dead),
        "dead_kept_by": dict(Counter(row.reason for row in dead)),
        "dead_listed": [_dead_json(row) for row in dead[:DEAD_LISTED]],
    }


def dead_json(dead: Sequence[DeadRow], limit: int | None = None) -> dict[str, object]:
    """What is kept of the messages that ended as dead, latest first; `total` counts also those past `limit`."""
    return {"total": len(dead), "dead": [_dead_json(row) for row in dead[:limit]]}


def counters_json(counters: Counters) -> dict[str, object]:
    """One worker's columns, and those that have reasons by reason."""
    return {
        "arrived": counters.arrived,
        "refused": sum(counters.refused.values()),
        "copies": sum(counters.copies.values()),
        "ignored": counters.ignored,
        "distinct": counters.distinct,
        "pending": counters.pending,
        "taken_over": counters.taken_over,
        "outcomes": sum(counters.outcomes.values()),
        "released": sum(counters.released.values()),
        "running": counters.running,
        "standby": counters.standby,
        "orphans": sum(counters.orphans.values()),
        "refused_by": dict(counters.refused),
        "copies_by": dict(counters.copies),
        "outcomes_by": dict(counters.outcomes),
        "released_by": dict(counters.released),
        "orphans_by": dict(counters.orphans),
        "difference": counters.difference,
        "held_difference": counters.held_difference,
    }


def connect_url(row: ShardRow, onebot_path: str) -> str:
    """Where a protocol end connects to this worker; a wildcard address becomes the machine's name."""
    host, _, port = row.address.rpartition(":")
    return visible(f"ws://{reachable(host, row.host)}:{port}{onebot_path}", _LONGEST_ADDRESS)


def bots_from(body: Mapping[str, Any]) -> list[BotRow]:
    """The accounts of `bots_json`. Raises KeyError, TypeError or ValueError where it is something else."""
    return [
        BotRow(
            self_id=str(row["self_id"]),
            nickname=str(row["nickname"]),
            shard_id=str(row["shard_id"]),
            epoch=int(row["epoch"]),
            state=BotState(row["state"]),
            reason=BotReason(row["reason"]),
            end=str(row["end"]),
            end_version=str(row["end_version"]),
            connection_key=str(row["connection_key"]),
            adapter=str(row["adapter"]),
            links=int(row["links"]),
            heartbeat_online=row["heartbeat_online"],
            connected_at=_number(row["connected_at"]),
            last_seen_at=_number(row["last_seen_at"]),
            last_event_at=_number(row["last_event_at"]),
            last_sent_at=_number(row["last_sent_at"]),
            conduct=read_conduct(row.get("conduct")),
        )
        for row in body["bots"]
    ]


def shards_from(body: Mapping[str, Any]) -> list[ShardRow]:
    """The workers of `shards_json`. Raises KeyError, TypeError or ValueError where it is something else."""
    return [
        ShardRow(
            shard_id=str(row["shard_id"]),
            epoch=int(row["epoch"]),
            state=ShardState(row["state"]),
            lease_left_s=float(row["lease_left_s"]),
            pid=int(row["pid"]),
            host=str(row["host"]),
            address=str(row["address"]),
            app=str(row["app"]),
            version=str(row["version"]),
            started_at=_number(row["started_at"]),
            links=int(row["links"]),
            counters=_counters_from(row["counters"]),
            loop_lag_ms=_number(row["loop_lag_ms"]),
            redis_rtt_ms=_number(row["redis_rtt_ms"]),
        )
        for row in body["shards"]
    ]


def books_from(body: Mapping[str, Any]) -> Books:
    """The ledger of `books_json`. Raises KeyError, TypeError or ValueError where it is something else."""
    ended = body["ended"]
    return Books(
        as_of=float(body["as_of"]),
        workers=tuple(
            WorkerBook(str(row["shard_id"]), int(row["epoch"]), _counters_from(row)) for row in body["workers"]
        ),
        ended=EndedBook(
            distinct=int(ended["distinct"]),
            handled=int(ended["handled"]),
            yielded=_by_reason(ended["yielded_by"]),
            dropped=_by_reason(ended["dropped_by"]),
            dead=_by_reason(ended["dead_by"]),
            open=int(ended["open"]),
            off=int(ended["off"]),
        ),
        unaccounted=int(body["unaccounted"]),
    )


def dead_from(body: Mapping[str, Any]) -> list[DeadRow]:
    """The rows of `dead_json`. Raises KeyError, TypeError or ValueError where it is something else."""
    return [
        DeadRow(
            at=float(row["at"]),
            said_at=None if row["said_at"] is None else float(row["said_at"]),
            reason=str(row["reason"]),
            cause=str(row["cause"]),
            group_id=str(row["group_id"]),
            shard_id=str(row["shard_id"]),
            epoch=int(row["epoch"]),
            bot_id=str(row["bot_id"]),
            handler=str(row["handler"]),
        )
        for row in body["dead"]
    ]


def _bot_json(row: BotRow) -> dict[str, object]:
    return {
        "self_id": visible(row.self_id),
        "nickname": visible(row.nickname),
        "shard_id": visible(row.shard_id),
        "epoch": row.epoch,
        "state": row.state.value,
        "reason": row.reason.value,
        "end": visible(row.end),
        "end_version": visible(row.end_version),
        "connection_key": visible(row.connection_key),
        "adapter": visible(row.adapter),
        "links": row.links,
        "heartbeat_online": row.heartbeat_online,
        "connected_at": row.connected_at,
        "last_seen_at": row.last_seen_at,
        "last_event_at": row.last_event_at,
        "last_sent_at": row.last_sent_at,
        "conduct": dict(row.conduct),
    }


def _shard_json(row: ShardRow, onebot_path: str) -> dict[str, object]:
    return {
        "shard_id": visible(row.shard_id),
        "epoch": row.epoch,
        "state": row.state.value,
        "lease_left_s": row.lease_left_s,
        "pid": row.pid,
        "host": visible(row.host, _LONGEST_ADDRESS),
        "address": visible(row.address, _LONGEST_ADDRESS),
        "connect_url": connect_url(row, onebot_path),
        "app": visible(row.app),
        "version": visible(row.version),
        "started_at": row.started_at,
        "links": row.links,
        "counters": counters_json(row.counters),
        "loop_lag_ms": row.loop_lag_ms,
        "redis_rtt_ms": row.redis_rtt_ms,
    }


def _dead_json(row: DeadRow) -> dict[str, object]:
    return {
        "at": row.at,
        "said_at": row.said_at,
        "reason": row.reason,
        "cause": visible(row.cause),
        "group_id": visible(row.group_id),
        "shard_id": visible(row.shard_id),
        "epoch": row.epoch,
        "bot_id": visible(row.bot_id),
        "handler": visible(row.handler),
    }


def _ended_json(ended: EndedBook) -> dict[str, object]:
    return {
        "distinct": ended.distinct,
        "handled": ended.handled,
        "yielded": sum(ended.yielded.values()),
        "dropped": sum(ended.dropped.values()),
        "dead": sum(ended.dead.values()),
        "open": ended.open,
        "yielded_by": dict(ended.yielded),
        "dropped_by": dict(ended.dropped),
        "dead_by": dict(ended.dead),
        "difference": ended.difference,
        "off": ended.off,
    }


def _counters_from(row: Mapping[str, Any]) -> Counters:
    return Counters(
        arrived=int(row["arrived"]),
        refused=_by_reason(row["refused_by"]),
        copies=_by_reason(row["copies_by"]),
        ignored=int(row["ignored"]),
        distinct=int(row["distinct"]),
        pending=int(row["pending"]),
        taken_over=int(row["taken_over"]),
        outcomes=_by_reason(row["outcomes_by"]),
        released=_by_reason(row["released_by"]),
        running=int(row["running"]),
        standby=int(row["standby"]),
        orphans=_by_reason(row["orphans_by"]),
    )


def _by_reason(row: Mapping[str, Any]) -> dict[str, int]:
    return {str(reason): int(count) for reason, count in row.items()}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)

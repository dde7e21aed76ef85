"""The workers' facts at `/api/v1/shards`, among them the URL that protocol ends are pointed at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from shard.view import Counters, ShardRow
from webui.answers import facts
from webui.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webui.view import Readings

_EVERY_ADDRESS = frozenset({"0.0.0.0", "[::]", "::", "*", ""})  # noqa: S104
_LONGEST_ADDRESS = 255


def routes(readings: Readings, onebot_path: str) -> APIRouter:
    """`/api/v1/shards`."""
    router = APIRouter()

    @router.get("/api/v1/shards")
    async def shards() -> Response:
        look = await readings.shards.look()
        body = None if look.value is None else shards_json(look.value, onebot_path)
        return facts(look, body, readings.clock.wall_s())

    return router


def shards_json(rows: Sequence[ShardRow], onebot_path: str) -> dict[str, object]:
    """The workers in the order of their ids."""
    ordered = sorted(rows, key=lambda row: (len(row.shard_id), row.shard_id, row.epoch))
    return {"shards": [_row_json(row, onebot_path) for row in ordered]}


def connect_url(row: ShardRow, onebot_path: str) -> str:
    """Where a protocol end connects to this worker; a wildcard address becomes the machine's name."""
    host, _, port = row.address.rpartition(":")
    shown = row.host if host in _EVERY_ADDRESS else host
    return visible(f"ws://{shown}:{port}{onebot_path}", _LONGEST_ADDRESS)


def counters_json(counters: Counters) -> dict[str, object]:
    """One worker's columns, and those that have reasons by reason."""
    return {
        "arrived": counters.arrived,
        "refused": sum(counters.refused.values()),
        "copies": sum(counters.copies.values()),
        "ignored": counters.ignored,
        "distinct": counters.distinct,
        "pending": counters.pending,
        "refused_by": dict(counters.refused),
        "copies_by": dict(counters.copies),
        "difference": counters.difference,
    }


def _row_json(row: ShardRow, onebot_path: str) -> dict[str, object]:
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

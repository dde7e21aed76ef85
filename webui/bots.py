"""The accounts: the page `/bots` and its facts at `/api/v1/bots`.

The page is a shell; a script in it asks for the facts and shows them. Rows are in a fixed order, worst state first,
and account ids are strings in every form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from shard.view import BotRow, BotState
from webui.answers import facts
from webui.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webui.pages import Pages
    from webui.view import Readings

_WORST_FIRST = {state: rank for rank, state in enumerate((BotState.OFFLINE, BotState.UNKNOWN, BotState.ONLINE))}


def routes(readings: Readings, pages: Pages) -> APIRouter:
    """`/`, `/bots`, `/api/v1/bots`."""
    router = APIRouter()

    @router.get("/")
    async def start() -> Response:
        return RedirectResponse("/bots", status_code=303)

    @router.get("/bots")
    async def page(request: Request) -> Response:
        return pages.draw(request, "bots.html")

    @router.get("/api/v1/bots")
    async def bots() -> Response:
        look = await readings.bots.look()
        return facts(look, None if look.value is None else bots_json(look.value), readings.clock.wall_s())

    return router


def bots_json(rows: Sequence[BotRow]) -> dict[str, object]:
    """The accounts and how many are in which state."""
    ordered = sorted(rows, key=lambda row: (_WORST_FIRST[row.state], len(row.self_id), row.self_id, row.shard_id))
    return {
        "counts": {state.value: sum(row.state is state for row in rows) for state in BotState},
        "bots": [_row_json(row) for row in ordered],
    }


def _row_json(row: BotRow) -> dict[str, object]:
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
    }

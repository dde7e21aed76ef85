"""The workers' facts at `/api/v1/shards`, among them the URL that protocol ends are pointed at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from shard.facts import shards_json
from webui.answers import facts

if TYPE_CHECKING:
    from webui.view import Readings


def routes(readings: Readings, onebot_path: str) -> APIRouter:
    """`/api/v1/shards`."""
    router = APIRouter()

    @router.get("/api/v1/shards")
    async def shards() -> Response:
        look = await readings.shards.look()
        body = None if look.value is None else shards_json(look.value, onebot_path)
        return facts(look, body, readings.clock.wall_s())

    return router

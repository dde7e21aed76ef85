"""The messages that ended as dead: the page `/dead` and its facts at `/api/v1/dead`, latest first.

Facts about each message, never its text: where it was said, who was to answer, and how it was found out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import Response

from shard.facts import dead_json
from webui.answers import facts

if TYPE_CHECKING:
    from webui.pages import Pages
    from webui.view import Readings

_BAD_REQUEST = 400


def routes(readings: Readings, pages: Pages) -> APIRouter:
    """`/dead`, `/api/v1/dead`."""
    router = APIRouter()

    @router.get("/dead")
    async def page(request: Request) -> Response:
        return pages.draw(request, "dead.html")

    @router.get("/api/v1/dead")
    async def dead(request: Request) -> Response:
        limit = _limit(request.query_params.get("limit"))
        look = await readings.dead.look()
        body = None if look.value is None else dead_json(look.value, limit)
        return facts(look, body, readings.clock.wall_s())

    return router


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise HTTPException(_BAD_REQUEST, "`limit` is the largest number of rows wanted, such as 200.")
    return int(text)

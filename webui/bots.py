"""The accounts: the page `/bots` and its facts at `/api/v1/bots`.

The page is a shell; a script in it asks for the facts and shows them. Rows are in a fixed order, worst state first,
and account ids are strings in every form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from shard.facts import bots_json
from webui.answers import facts

if TYPE_CHECKING:
    from webui.pages import Pages
    from webui.view import Readings


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

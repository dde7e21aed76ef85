"""The ledger's facts at `/api/v1/books`: what arrived against what became of it, and whether it adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from shard.facts import books_json
from webui.answers import facts

if TYPE_CHECKING:
    from webui.view import Readings


def routes(readings: Readings) -> APIRouter:
    """`/api/v1/books`."""
    router = APIRouter()

    @router.get("/api/v1/books")
    async def books() -> Response:
        look = await readings.books.look()
        return facts(look, None if look.value is None else books_json(look.value), readings.clock.wall_s())

    return router

"""The ledger's facts at `/api/v1/books`: what arrived against what became of it, and whether it adds up.

The latest messages that ended as dead stand beside it: they are what a person may want to do something about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from shard.facts import books_json
from webui.answers import facts

if TYPE_CHECKING:
    from webui.view import Readings

_DEAD_SHARE_S = 3.0
"""Pages ask for the books every two seconds, and the list of the dead may be long."""


def routes(readings: Readings) -> APIRouter:
    """`/api/v1/books`."""
    router = APIRouter()

    @router.get("/api/v1/books")
    async def books() -> Response:
        look = await readings.books.look()
        dead = (await readings.dead.look(_DEAD_SHARE_S)).value or ()
        return facts(look, None if look.value is None else books_json(look.value, dead), readings.clock.wall_s())

    return router

"""The ledger's facts at `/api/v1/books`: what arrived against what became of it, and whether it adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from shard.view import Books, EndedBook
from webui.answers import facts
from webui.shards import counters_json
from webui.untrusted import visible

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


def books_json(books: Books) -> dict[str, object]:
    """Both sides of the ledger, per worker and in all."""
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
    }

"""What machines ask of the hub: is it alive, can it write, what did it count.

Alive means the process answers; ready means that a scripted write reached Redis just now, for everything the hub is
for needs that. Neither tells a stranger more than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from webui.answers import JsonAnswer
from webui.guard import METRICS_PATH

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from webui.view import Readings


def routes(readings: Readings, registry: CollectorRegistry) -> APIRouter:
    """`/healthz`, `/readyz`, `/metrics`."""
    router = APIRouter()

    @router.get("/healthz")
    async def alive() -> Response:
        return JsonAnswer({"alive": True})

    @router.get("/readyz")
    async def ready() -> Response:
        look = await readings.ready.look()
        now_s = readings.clock.wall_s()
        if look.blind_since is not None or look.value is None:
            answer = {"ready": False, "reason": "redis_unavailable", "since": look.blind_since, "as_of": now_s}
            return JsonAnswer(answer, status_code=503)
        value = look.value
        answer = {
            "ready": value.ready,
            "reason": value.reason,
            "round_trip_ms": value.round_trip_ms,
            "as_of": look.as_of,
        }
        return JsonAnswer(answer, status_code=200 if value.ready else 503)

    @router.get(METRICS_PATH)
    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    return router

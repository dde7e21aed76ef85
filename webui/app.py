"""Puts the hub's web application together: the guard around it, and one router per page.

Builds nothing that talks to Redis and starts no process: `webui/hub.py` does, and hands over what is needed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from webui import books, bots, dead, health, shards, signin
from webui.answers import error
from webui.guard import Guard
from webui.pages import Pages, wants_html
from webui.view import Readings

if TYPE_CHECKING:
    from collections.abc import Collection

    from prometheus_client import CollectorRegistry

    from pallas.clock import Clock
    from shard.view import ClusterView
    from webui.auth import Auth

_KNOWN_REFUSALS = {404: "not_found", 405: "wrong_method"}


def create_app(
    view: ClusterView,
    auth: Auth,
    clock: Clock,
    *,
    registry: CollectorRegistry,
    onebot_path: str,
    hosts: Collection[str] = (),
) -> FastAPI:
    """The ASGI application of one hub.

    `onebot_path` is the workers' path, for the URLs the pages show. `hosts` are the names by which browsers may
    address the hub besides IP addresses and localhost. Serve it with uvicorn's access log off: the guard writes one
    without query strings.
    """
    pages = Pages()
    readings = Readings(view, clock)
    app = FastAPI(title="Pallas Cluster", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, auth=auth, pages=pages, clock=clock, hosts=hosts)
    app.include_router(health.routes(readings, registry))
    app.include_router(signin.routes(auth, pages))
    app.include_router(bots.routes(readings, pages))
    app.include_router(shards.routes(readings, onebot_path))
    app.include_router(books.routes(readings))
    app.include_router(dead.routes(readings, pages))
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")

    @app.exception_handler(HTTPException)
    async def refused(request: Request, problem: HTTPException) -> Response:
        code = _KNOWN_REFUSALS.get(problem.status_code, "bad_request")
        if wants_html(request):
            return pages.refusal(request, problem.status_code, code)
        hint = "Paths begin with /api/v1/: bots, shards, books, dead."
        return error(problem.status_code, code, str(problem.detail), hint, headers=problem.headers)

    return app

"""The sign-in page: exchanges a one-time link or the hub token for a session.

Opening a link only shows a form with its code, which the page sends by itself: whatever fetches links to preview
them cannot use one up, and the answer to a request of our own page may set a strict cookie and be followed with it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from webui.auth import peer_of
from webui.guard import SIGN_IN_PATH

if TYPE_CHECKING:
    from starlette.responses import HTMLResponse

    from webui.auth import Auth
    from webui.pages import Pages

_LARGEST_FORM = 4096
_LONGEST_CODE = 200


def routes(auth: Auth, pages: Pages) -> APIRouter:
    """`GET` and `POST /signin`."""
    router = APIRouter()

    def page(request: Request, status: int, *, code: str = "", problem: str = "", wait_s: int = 0) -> HTMLResponse:
        return pages.draw(
            request,
            "signin.html",
            status=status,
            keep={"code": code} if code else None,
            code=code,
            problem=problem,
            wait_s=wait_s,
            has_token=auth.has_token,
        )

    @router.get(SIGN_IN_PATH)
    async def show(request: Request) -> Response:
        return page(request, 200, code=request.query_params.get("code", "")[:_LONGEST_CODE])

    @router.post(SIGN_IN_PATH)
    async def enter(request: Request) -> Response:
        peer = peer_of(request)
        wait_s = math.ceil(auth.limiter.wait_s(peer))
        if wait_s:
            refused = page(request, 429, problem="too_many_attempts", wait_s=wait_s)
            refused.headers["Retry-After"] = str(wait_s)
            return refused
        form = await _form(request)
        by_token = "token" in form
        cookie = auth.exchange_token(form["token"].strip()) if by_token else auth.redeem(form.get("code", ""))
        if cookie is None:
            auth.limiter.failed(peer)
            return page(request, 401, problem="wrong_token" if by_token else "link_used_up")
        auth.limiter.succeeded(peer)
        response = RedirectResponse("/bots", status_code=303)
        auth.remember(response, cookie, https=request.scope["scheme"] == "https")
        return response

    return router


async def _form(request: Request) -> dict[str, str]:
    """The fields of a posted form; of one that is too large, none."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            return {}
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=8)
    return {name: values[0] for name, values in fields.items()}

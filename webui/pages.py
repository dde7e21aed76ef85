"""Draws the hub's pages: one shell, the visitor's language, and a fresh script nonce for every answer.

A page carries the catalogue of its language for its scripts and no facts of the cluster: those come from the JSON
API, so that a page and a script of an operator see the same.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from shard.words import LANGUAGES, Catalogue
from webui.language import load_catalogues, negotiate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import HTTPConnection
    from starlette.responses import Response

LANGUAGE_COOKIE = "pallas_language"

_A_YEAR_S = 31_536_000
_NONCE_BYTES = 18


class Pages:
    """Renders templates for a visitor."""

    def __init__(self) -> None:
        """Reads the catalogues and templates of the package."""
        self._catalogues = load_catalogues()
        self._templates = Environment(
            loader=PackageLoader("webui"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )

    def words(self, request: HTTPConnection) -> Catalogue:
        """The catalogue a visitor reads: asked for by `?lang=`, remembered, or preferred by the browser."""
        for choice in (request.query_params.get("lang"), request.cookies.get(LANGUAGE_COOKIE)):
            if choice in self._catalogues:
                return self._catalogues[choice]
        return self._catalogues[negotiate(request.headers.get("accept-language", ""))]

    def draw(
        self,
        request: HTTPConnection,
        template: str,
        *,
        status: int = 200,
        keep: Mapping[str, str] | None = None,
        **fields: object,
    ) -> HTMLResponse:
        """The page of `template`; `keep` are query parameters that a change of language must not lose."""
        words = self.words(request)
        links = [(language, "?" + urlencode({**(keep or {}), "lang": language})) for language in LANGUAGES]
        body = self._templates.get_template(template).render(
            t=words.text,
            words=dict(words.words),
            language=words.language,
            language_links=links,
            nonce=nonce_of(request),
            **fields,
        )
        response = HTMLResponse(body, status_code=status)
        _remember_language(request, response, words.language)
        return response

    def refusal(self, request: HTTPConnection, status: int, code: str, **fields: object) -> HTMLResponse:
        """A page that says why a request is not answered and what to do."""
        words = self.words(request)
        return self.draw(
            request,
            "refusal.html",
            status=status,
            code=code,
            heading=words.text(f"refusal.{code}"),
            advice=words.text(f"refusal.{code}.advice", **fields),
        )


def nonce_of(request: HTTPConnection) -> str:
    """The nonce that scripts of this answer carry; made on first use."""
    state = request.scope.setdefault("state", {})
    nonce: str = state.setdefault("nonce", secrets.token_urlsafe(_NONCE_BYTES))
    return nonce


def wants_html(request: HTTPConnection) -> bool:
    """Whether a person's browser asks for a page rather than a program for JSON."""
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith("/api/")


def _remember_language(request: HTTPConnection, response: Response, language: str) -> None:
    if request.query_params.get("lang") == language and request.cookies.get(LANGUAGE_COOKIE) != language:
        response.set_cookie(LANGUAGE_COOKIE, language, max_age=_A_YEAR_S, path="/", httponly=True, samesite="strict")

"""The one shape of what the JSON API answers: facts with their time, or an error with what to do.

Every answer says when its facts were read (`as_of`) and when it was written (`served_at`, by the hub's clock), so
that a reader can show ages without trusting a clock of its own. An error never carries an exception's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webui.view import Look


class JsonAnswer(Response):
    """A JSON body; ids in it are strings already."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """`content` as UTF-8 JSON."""
        return orjson.dumps(content)


def error(
    status: int, code: str, message: str, hint: str, *, headers: Mapping[str, str] | None = None, **more: object
) -> JsonAnswer:
    """The answer `{"error": {code, message, hint}}` with `more` beside it."""
    body = {"error": {"code": code, "message": message, "hint": hint}, **more}
    return JsonAnswer(body, status_code=status, headers=headers)


def facts(look: Look[Any], body: Mapping[str, object] | None, now_s: float) -> JsonAnswer:
    """What a look showed: `body` with its times, or 503 with `body` as `last_known` where Redis cannot be seen."""
    if look.blind_since is None and look.as_of is not None and body is not None:
        return JsonAnswer({"as_of": look.as_of, "served_at": now_s, **body})
    last_known = None if body is None or look.as_of is None else {"as_of": look.as_of, **body}
    return error(
        503,
        "redis_unavailable",
        f"Redis cannot be read: {look.why}.",
        "Workers go on without the hub. Run `pallas doctor` where the hub runs; this heals without a restart.",
        as_of=now_s,
        served_at=now_s,
        since=look.blind_since,
        last_known=last_known,
    )

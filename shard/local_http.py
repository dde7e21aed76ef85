"""Plain GET requests to our own processes on this machine, as commands make them.

Proxies of the environment are not for these, redirects are not followed, and no answer is read without bounds.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_LARGEST = 64 << 20
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True, frozen=True)
class Answer:
    """What a process answered; any status is an answer."""

    status: int
    body: bytes


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: a bearer must not follow it elsewhere."""

    def redirect_request(self, *_: object) -> None:
        return None


def get(url: str, *, headers: Mapping[str, str] = _NO_HEADERS, timeout_s: float = 3.0) -> Answer:
    """The answer at `url`, an `http://` address. Blocks: call it in a thread. Raises OSError where nobody answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay())
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310  (http: of an endpoint file)
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return Answer(answer.status, answer.read(_LARGEST))
    except urllib.error.HTTPError as refused:
        with refused:
            return Answer(refused.code, refused.read(_LARGEST))
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{url} answers something that is not HTTP ({type(error).__name__})") from error

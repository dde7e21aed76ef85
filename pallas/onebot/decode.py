"""From the bytes of a frame to a JSON object, within limits: the only place that decodes what an end sent.

The fast parser reads everything once. Two faults of real ends are mended instead of refused: half of a surrogate
pair becomes U+FFFD, and an integer beyond 64 bits, which the fast parser rounds, can be read again exactly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from pallas.errors import BadFrame
from pallas.model import Reason

_INT_CHARS: Final = 64
# Two-character escapes are consumed whole, so a backslash that is itself escaped starts nothing.
_ESCAPE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a frame may cost: its bytes, its segments, how deep its JSON nests (at most 500)."""

    max_bytes: int = 16 * 1024 * 1024
    max_segments: int = 1000
    max_depth: int = 64


def decode(frame: bytes, limits: Limits, on_repaired: Callable[[], None] | None) -> dict[str, Any]:
    """The object that a frame holds. Raises BadFrame.

    `on_repaired` is called where half of a surrogate pair was replaced.
    """
    if len(frame) > limits.max_bytes:
        raise BadFrame(Reason.TOO_LARGE, f"{len(frame)} bytes, at most {limits.max_bytes} are taken")
    try:
        body = orjson.loads(frame)
    except orjson.JSONDecodeError as error:
        body = _repaired(frame, error)
        if on_repaired is not None:
            on_repaired()
    # Few brackets cannot nest deep; the look at the nesting itself is for large frames only.
    if frame.count(b"{") + frame.count(b"[") > limits.max_depth and _deeper_than(body, limits.max_depth):
        raise BadFrame(Reason.TOO_DEEP, f"nested deeper than {limits.max_depth}")
    if type(body) is not dict:
        raise BadFrame(Reason.WRONG_TYPE, "the frame is no JSON object")
    return body


def decode_exact(frame: bytes) -> dict[str, Any]:
    """The same for a frame that `decode` has accepted, slower and with every integer exact. Raises BadFrame."""
    try:
        body: dict[str, Any] = json.loads(_whole_surrogates(frame).decode(), parse_int=_exact_int)
    except (ValueError, RecursionError):
        raise BadFrame(Reason.NOT_JSON, "it cannot be read with exact numbers") from None
    return body


def _repaired(frame: bytes, error: orjson.JSONDecodeError) -> Any:
    if _SURROGATE.search(frame):
        try:
            return orjson.loads(_whole_surrogates(frame))
        except orjson.JSONDecodeError as still:
            # With its traceback it would hold this frame, which holds it, and all that lies on the stack below.
            error = still.with_traceback(None)
    # The position is told, the content never.
    detail = f"at character {error.pos} of {len(frame)} bytes"
    if "depth limit" in str(error):
        raise BadFrame(Reason.TOO_DEEP, detail) from None
    try:
        frame.decode()
    except UnicodeDecodeError as bad:
        raise BadFrame(Reason.NOT_UTF8, f"at byte {bad.start} of {len(frame)}") from None
    raise BadFrame(Reason.NOT_JSON, detail) from None


def _whole_surrogates(frame: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], frame)


def _exact_int(digits: str) -> int | float:
    # No id is that long; as a float it is refused as one.
    return int(digits) if len(digits) <= _INT_CHARS else float(digits)


def _deeper_than(body: object, limit: int) -> bool:
    level = [body]
    for _ in range(limit):
        deeper: list[object] = []
        for value in level:
            if type(value) is dict:
                deeper += [inner for inner in value.values() if type(inner) is dict or type(inner) is list]
            elif type(value) is list:
                deeper += [inner for inner in value if type(inner) is dict or type(inner) is list]
        if not deeper:
            return False
        level = deeper
    return True

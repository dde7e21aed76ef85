"""CQ strings: messages whose segments are written into the text as `[CQ:type,key=value]`.

Parsing takes linear time and never fails: what is no code stays text. It is used only on strings that an end sent
as its string form, never on text that a person typed or a bot sends.
"""

from __future__ import annotations

import re
from typing import Any, Final

# A parameter never holds a bare bracket, so a broken code ends the attempt at the next one: no quadratic scan.
_CODE: Final = re.compile(r"\[CQ:([A-Za-z0-9_.-]+)((?:,[^\[\]]*)?)\]")


def unescape(text: str, *, parameter: bool = False) -> str:
    """`text` without its escapes; in a parameter the comma has one as well. Any other ampersand stays."""
    if "&" not in text:
        return text
    if parameter:
        text = text.replace("&#44;", ",")
    # The ampersand last: what it reveals was typed by a person.
    return text.replace("&#91;", "[").replace("&#93;", "]").replace("&amp;", "&")


def parse(text: str) -> list[dict[str, Any]]:
    """The segments of a CQ string, text in between as text segments; every value is a string."""
    # Text, type and parameters in turn; the parameters still begin with their comma.
    parts = _CODE.split(text)
    segments: list[dict[str, Any]] = []
    if parts[0]:
        segments.append({"type": "text", "data": {"text": unescape(parts[0])}})
    for i in range(1, len(parts), 3):
        segments.append({"type": parts[i], "data": _parameters(parts[i + 1])})
        if parts[i + 2]:
            segments.append({"type": "text", "data": {"text": unescape(parts[i + 2])}})
    return segments


def _parameters(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for parameter in text.split(","):
        key, _, value = parameter.partition("=")
        if key:
            found[key] = unescape(value, parameter=True) if "&" in value else value
    return found

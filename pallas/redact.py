"""What must never be shown: tokens, passwords, keys, and what people wrote.

Used wherever text leaves the process for a person: log lines, error texts, `pallas doctor`. Redacting errs on the
side of hiding too much, and never fails: a line that cannot be cleaned is worse than a line that says little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

HIDDEN = "[hidden]"
NOT_SHOWN = "[not shown]"

_HIDE_WORD = r"(?:token|authorization|passw(?:or)?d|secret|cookie|credential|api[_-]?key|private[_-]?key)"
_HIDE_NAME = re.compile(_HIDE_WORD, re.IGNORECASE)
_BODY_NAMES = frozenset({"body", "comment", "content", "message", "raw", "raw_message", "segments", "text"})

_WORD = re.compile(r"[^\s\"'<>]+")
_SCHEME = re.compile(r"\b(bearer|basic)(\s+)[^\s,;\"']+", re.IGNORECASE)
_PAIR = re.compile(
    rf"({_HIDE_WORD}[\w-]{{0,40}}[\"']?\s{{0,3}}[:=]\s{{0,3}})"
    # What is hidden already stays as it is.
    rf"({re.escape(HIDDEN)}|"
    r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|(?:(?:bearer|basic)\s+)?[^\s,;&\"'}\])]+)",
    re.IGNORECASE,
)
_SHORTEST_SECRET = 8


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    return _HIDE_NAME.search(name) is not None


def is_body_name(name: str) -> bool:
    """Whether a field of this name holds what a person wrote."""
    return name in _BODY_NAMES


def passwords_in(url: str) -> tuple[str, ...]:
    """The password of an address, as written and as decoded."""
    begin, end = _userinfo(url)
    password = url[begin:end].partition(":")[2]
    return tuple(dict.fromkeys(each for each in (password, unquote(password)) if each))


def redact_text(text: str) -> str:
    """`text` without address passwords, authorization values and `token=…`-like pairs."""
    # The plain tests first: on a log line of ours they are all that runs, and the patterns cost ten times as much.
    if text.isalnum():
        return text
    if "@" in text and "://" in text:
        text = _WORD.sub(_without_userinfo, text)
    if "=" in text or ":" in text:
        text = _PAIR.sub(rf"\1{HIDDEN}", text)
    if " " in text or not text.isprintable():
        text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
    return text


def _userinfo(word: str) -> tuple[int, int]:
    # Up to the last `@` of the word: passwords in hand-written addresses often hold a bare `@` or `/`.
    begin = word.find("://") + 3
    return (begin, max(begin, word.rfind("@"))) if begin > 2 else (0, 0)


def _without_userinfo(match: re.Match[str]) -> str:
    begin, end = _userinfo(match[0])
    return match[0] if begin == end else match[0][:begin] + HIDDEN + match[0][end:]


class KnownSecrets:
    """The secrets of this process, removed by value wherever they turn up."""

    __slots__ = ("_pattern",)

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # A shorter "secret" is no secret, and removing it would make every line unreadable.
        values = sorted({s for s in secrets if len(s) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, values))) if values else None

    def redact(self, text: str) -> str:
        """`text` without any of the known secrets, and without what looks like one."""
        if self._pattern is not None and len(text) >= _SHORTEST_SECRET:
            text = self._pattern.sub(HIDDEN, text)
        return redact_text(text)

"""Makes text from outside harmless to look at: bounded, and with nothing in it that hides or reorders.

Nicknames, versions and addresses are written by strangers. What comes out of `visible` can be encoded as UTF-8,
stands on one line and shows control and direction characters as escapes; it is still text, never markup.
"""

from __future__ import annotations

import unicodedata

NAME_LIMIT = 64

# Joiners hold family emoji and Persian or Indic words together; on their own they are only invisible.
_JOINERS = frozenset("\u200c\u200d")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, limit: int = NAME_LIMIT) -> str:
    """`text` in at most `limit` characters, the last one `…` where something was cut off."""
    shown: list[str] = []
    length = 0
    for char in text[: limit + 1]:
        piece = char if char in _JOINERS or unicodedata.category(char) not in _HIDDEN_CATEGORIES else _escape(char)
        if length + len(piece) > limit:
            while shown and length + 1 > limit:
                length -= len(shown.pop())
            return "".join(shown) + "…"
        shown.append(piece)
        length += len(piece)
    return "".join(shown)


def _escape(char: str) -> str:
    point = ord(char)
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"

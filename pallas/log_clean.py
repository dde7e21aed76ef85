"""What a value looks like in a log line: short, on one line, without secrets, whatever it was.

Escapes every character that a terminal, an editor or a log shipper could take for the end of a line, a colour, or a
change of writing direction. Never raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pallas.redact import HIDDEN, NOT_SHOWN, KnownSecrets, is_body_name, is_secret_name

FIELD_CHARS = 500
_KEY_CHARS = 64
_ITEMS = 20
_DEPTH = 2
# Secrets are removed before the cut, so that none is left because its end was cut off.
_LOOKED_AT_CHARS = 8 * FIELD_CHARS
_BIG_INT = 1 << 63
_NAMES = 1024
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_UNSAFE_BUT_NEWLINE = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def escape(text: str) -> str:
    r"""`text` with control, direction and invisible characters and lone surrogates written as `\\u….`."""
    return text if text.isprintable() else _UNSAFE.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


class _Name(NamedTuple):
    text: str
    hidden: str | None
    """What is written in place of every value of that name."""


class Cleaner:
    """Cleans the values of one process, whose secrets it knows."""

    __slots__ = ("_names", "_secrets")

    def __init__(self, secrets: KnownSecrets) -> None:
        self._secrets = secrets
        self._names: dict[str, _Name] = {}

    def name(self, name: str) -> _Name:
        """How a field, or an event, of this name is written; remembered, since names recur and are few."""
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= _NAMES:
                self._names.clear()
            hidden = HIDDEN if is_secret_name(name) else NOT_SHOWN if is_body_name(name) else None
            known = self._names[name] = _Name(self.text(name), hidden)
        return known

    def text(self, text: str) -> str:
        """One line, at most FIELD_CHARS long."""
        looked_at = text if len(text) <= _LOOKED_AT_CHARS else text[:_LOOKED_AT_CHARS]
        cleaned = escape(self._secrets.redact(looked_at))
        if len(cleaned) <= FIELD_CHARS and looked_at is text:
            return cleaned
        return f"{cleaned[:FIELD_CHARS]}… ({len(text)} characters)"

    def lines(self, text: str, most: int) -> str:
        r"""Several lines joined by `\\n`; of a longer text the end is kept, where a traceback says what happened."""
        cleaned = self._secrets.redact(text[-_LOOKED_AT_CHARS * 2 :])
        cleaned = _UNSAFE_BUT_NEWLINE.sub(_written_out, cleaned)
        return cleaned if len(cleaned) <= most else "…" + cleaned[-most:]

    def fields(self, fields: Mapping[str, Any], *, taken: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event; one whose name is `taken` gets an underscore."""
        cleaned: dict[str, Any] = {}
        for name, value in fields.items():
            key = self.name(name).text[:_KEY_CHARS]
            cleaned[key + "_" if key in taken else key] = self.value(name, value, _DEPTH)
        return cleaned

    def value(self, name: str, value: object, depth: int) -> Any:
        """A value that JSON can hold, hidden where its name says so."""
        if value is None or isinstance(value, bool):
            return value
        hidden = self.name(name).hidden
        if hidden is not None:
            return hidden
        if isinstance(value, int | float):
            return self._number(value)
        if isinstance(value, str):
            return self.text(value if type(value) is str else str(value))
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if depth and isinstance(value, Mapping):
            items = list(value.items())[:_ITEMS]
            shown = {self.text(str(key))[:_KEY_CHARS]: self.value(str(key), each, depth - 1) for key, each in items}
            return shown if len(items) == len(value) else shown | {"…": f"{len(value) - len(items)} more"}
        if depth and isinstance(value, list | tuple | set | frozenset):
            parts = [self.value(name, each, depth - 1) for each in list(value)[:_ITEMS]]
            return parts if len(parts) == len(value) else [*parts, f"… {len(value) - len(parts)} more"]
        return self.text(_as_text(value))

    @staticmethod
    def _number(value: float) -> Any:
        if isinstance(value, float):
            return float(value)
        return int(value) if -_BIG_INT <= value < _BIG_INT else _as_text(value)[:FIELD_CHARS]


def _as_text(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"

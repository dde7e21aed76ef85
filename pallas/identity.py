"""When two reports are the same physical message: what is compared, never who wins.

A sequence that the server gave out decides; without one the sender and the normalised text do. Used are text,
segment classes and a visible MD5 only. Never raw_message, URLs, file codes, reply or forward ids: those belong to
one account or one session. Everything here is pure and takes its times as arguments.
"""

from __future__ import annotations

import re
from typing import Any, Final
from unicodedata import normalize

from blake3 import blake3

from pallas.model import Message, Notice

SEQUENCE_BITS: Final = 16
_MASK: Final = (1 << SEQUENCE_BITS) - 1

# What one end reports as a mention of everyone arrives as this text from another.
_AT_ALL_TEXT: Final = "@全体成员"

# NFC takes quadratic time on a run of combining marks; the rest of a longer text is compared as it came.
_NFC_CHARS: Final = 1000

_MD5: Final = re.compile(
    r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})(?![0-9A-Fa-f])"
)
_STICKER_TEXT: Final = re.compile(r"\[[^\[\]]{1,32}\]")
# A file name with a digest is far shorter; a base64 image in its place is not searched.
_NAME_CHARS: Final = 200

_IMAGE: Final = "image"
_CLASSES: Final[dict[str, str]] = {
    "image": _IMAGE,
    "mface": _IMAGE,
    "marketface": _IMAGE,
    "record": "record",
    "video": "video",
    "file": "file",
    "forward": "forward",
    "node": "forward",
    "json": "card",
    "xml": "card",
    "share": "card",
    "music": "card",
    "location": "card",
    "contact": "card",
    "face": "face",
}
# Text and mentions are compared elsewhere, a quote may be missing on one account, dice and rps are lost on one end.
_INVISIBLE: Final = frozenset({"text", "at", "reply", "dice", "rps"})
_LOST_FACES: Final = frozenset({"358", "359"})
_FORWARD_CARD: Final = "com.tencent.multimsg"


def seq16(real_seq: object, message_seq: object, message_id: object, *, packed: bool = False) -> int | None:
    """The server's per-group sequence, low 16 bits; None where the report carries none.

    `packed`: the end keeps the sequence in bits 16-31 of its message id. A field that repeats the message id is
    a copy, not a sequence; so is nothing that is zero, negative or no whole number.
    """
    if real_seq is not None:
        number = _whole(real_seq)
        if number > 0 and number != _whole(message_id):
            return number & _MASK
    if message_seq is not None:
        number = _whole(message_seq)
        if number > 0 and number != _whole(message_id):
            return number & _MASK
    if packed:
        number = _whole(message_id)
        if number not in {0, -1}:
            return (number >> SEQUENCE_BITS) & _MASK
    return None


def normal_text(text: str) -> str:
    """`text` as it is compared: NFC, each run of white space one blank, trimmed, without the mention of everyone."""
    text = " ".join(text.replace(_AT_ALL_TEXT, " ").split())
    if text.isascii():
        return text
    if len(text) <= _NFC_CHARS:
        return normalize("NFC", text)
    return normalize("NFC", text[:_NFC_CHARS]) + text[_NFC_CHARS:]


def body_digest(message: Message) -> bytes:
    """Eight bytes that are equal for equal content by the same person, whatever end reports it.

    The content is the normalised text; where there is none, the classes of the segments. Members who hide their
    names share one user id, so their flag counts as well.
    """
    kind, body = "t", normal_text(message.text)
    if not body:
        kind, body = "c", _classes(message.raw_segments)
    elif body[0] == "[" and len(message.raw_segments) == 1 and _STICKER_TEXT.fullmatch(body):
        # A sticker of the platform's shop is an image, a segment of its own, or this text, depending on the end.
        kind, body = "c", _IMAGE
    return _digest(8, kind, message.user_id, message.anonymous, body)


def notice_digest(notice: Notice) -> bytes:
    """Eight bytes that are equal for reports of the same happening; times and message ids are each end's own."""
    return _digest(
        8,
        "n",
        notice.notice_type,
        notice.sub_type,
        notice.user_id,
        notice.operator_id,
        notice.target_id,
        normal_text(notice.detail),
    )


def is_stale(time_s: int, now_s: float, limit_s: float) -> bool:
    """Whether an event is too old to be told from a copy; an unknown time (0) is never stale."""
    return 0 < time_s < now_s - limit_s


def _whole(value: object) -> int:
    """`value` as a whole number; 0 where it is none."""
    if type(value) is int:
        return value
    if type(value) is str and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    return 0


def _digest(size: int, kind: str, *parts: str) -> bytes:
    # Lengths go before the parts, so that no two lists of parts read the same.
    text = kind + "".join([f"{len(part)}:{part}" for part in parts])
    return blake3(text.encode("utf-8", "surrogatepass")).digest(length=size)


def _classes(segments: list[dict[str, Any]]) -> str:
    """The coarse classes of what has no text, in order, without ids."""
    found: list[str] = []
    for segment in segments:
        kind, data = segment["type"], segment["data"]
        if kind in _INVISIBLE:
            continue
        name = _CLASSES.get(kind, "other")
        if name is _IMAGE:
            digest = "" if kind != "image" or "emoji_id" in data else _visible_md5(data)
            name = f"{name}:{digest}" if digest else name
        elif name == "face":
            number = data.get("id")
            if isinstance(number, str | int) and str(number) in _LOST_FACES:
                continue
        elif name == "card":
            content = data.get("data")
            if isinstance(content, str) and _FORWARD_CARD in content:
                name = "forward"
        found.append(name)
    return ",".join(found)


def _visible_md5(data: dict[str, Any]) -> str:
    for field in ("file", "filename"):
        name = data.get(field)
        if isinstance(name, str) and len(name) <= _NAME_CHARS and "://" not in name:
            match = _MD5.search(name)
            if match:
                return match.group().replace("-", "").lower()
    return ""

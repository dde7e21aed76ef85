"""What a message is made of, for bot authors and whatever the platform.

A plain string is always text: it is never searched for codes, so what a person typed cannot become a mention or a
file. Fields that only one implementation knows are left to `Message.raw_segments`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pallas.errors import AppError
from pallas.model import JsonObject

EVERYONE = "all"


@dataclass(frozen=True, slots=True)
class Text:
    """Text as a person reads it."""

    text: str


@dataclass(frozen=True, slots=True)
class At:
    """A mention of one account."""

    user_id: str


@dataclass(frozen=True, slots=True)
class AtAll:
    """A mention of everyone in the group."""


@dataclass(frozen=True, slots=True)
class Face:
    """One of the platform's own small faces, by its number."""

    face_id: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture. To send: `file` is an `http(s)://`, `file://` or `base64://` address.

    As received, `file` is a name that only the reporting account understands and `url` an address that works for a
    while; such an image is sent again by its `url`.
    """

    file: str
    url: str = ""
    summary: str = ""
    sticker: bool = False
    """One of the platform's shop stickers; received only."""

    @classmethod
    def of(cls, content: bytes) -> Self:
        """An image to send from its bytes."""
        return cls(_base64_address(content))


@dataclass(frozen=True, slots=True)
class Record:
    """A voice message; addresses as in `Image`."""

    file: str
    url: str = ""

    @classmethod
    def of(cls, content: bytes) -> Self:
        """A voice message to send from its bytes."""
        return cls(_base64_address(content))


@dataclass(frozen=True, slots=True)
class Video:
    """A video; addresses as in `Image`."""

    file: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Quote:
    """Marks the message as an answer to another one, by an id of the account that sends it."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Forward:
    """A bundle of forwarded messages, by an id of the account that reported it."""

    forward_id: str


@dataclass(frozen=True, slots=True)
class Card:
    """A rich card: the platform's own `json` or `xml` text."""

    data: str
    kind: str = "json"


@dataclass(frozen=True, slots=True)
class Other:
    """Any other segment, as it stands on the wire."""

    kind: str
    data: JsonObject


Segment = Text | At | AtAll | Face | Image | Record | Video | Quote | Forward | Card | Other
Content = str | Segment | Iterable[str | Segment]


def from_wire(segments: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    """Segment objects of a wire array that the parser has checked; unknown types become `Other`."""
    return tuple([_read(segment["type"], segment["data"]) for segment in segments])


def to_wire(content: Content) -> list[dict[str, Any]]:
    """The wire array of what a handler wants to send. Raises AppError for anything that is no content."""
    if isinstance(content, str):
        return [_text(content)] if content else []
    if isinstance(content, Segment):
        return [_write(content)]
    if isinstance(content, bytes | Mapping) or not isinstance(content, Iterable):
        raise AppError(_not_content(content))
    wire: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, str):
            if part:
                wire.append(_text(part))
        elif isinstance(part, Segment):
            wire.append(_write(part))
        else:
            raise AppError(_not_content(part))
    return wire


def _read(kind: str, data: Mapping[str, Any]) -> Segment:
    match kind:
        case "text":
            return Text(_field(data, "text"))
        case "at":
            user_id = _field(data, "qq")
            return AtAll() if user_id == EVERYONE else At(user_id) if user_id else Other(kind, data)
        case "face":
            return Face(_field(data, "id"))
        case "image":
            return Image(_field(data, "file"), _field(data, "url"), _field(data, "summary"), "emoji_id" in data)
        case "mface":
            return Image(_field(data, "file"), _field(data, "url"), _field(data, "summary"), sticker=True)
        case "record":
            return Record(_field(data, "file"), _field(data, "url"))
        case "video":
            return Video(_field(data, "file"), _field(data, "url"))
        case "reply":
            return Quote(_field(data, "id"))
        case "forward":
            return Forward(_field(data, "id"))
        case "json" | "xml":
            return Card(_field(data, "data"), kind)
        case _:
            return Other(kind, data)


def _write(segment: Segment) -> dict[str, Any]:
    match segment:
        case Text(text):
            return _text(text)
        case At(user_id):
            return {"type": "at", "data": {"qq": str(user_id)}}
        case AtAll():
            return {"type": "at", "data": {"qq": EVERYONE}}
        case Face(face_id):
            return {"type": "face", "data": {"id": str(face_id)}}
        case Image(file, url, summary):
            data = {"file": url or file}
            if summary:
                data["summary"] = summary
            return {"type": "image", "data": data}
        case Record(file, url):
            return {"type": "record", "data": {"file": url or file}}
        case Video(file, url):
            return {"type": "video", "data": {"file": url or file}}
        case Quote(message_id):
            return {"type": "reply", "data": {"id": str(message_id)}}
        case Forward(forward_id):
            return {"type": "forward", "data": {"id": str(forward_id)}}
        case Card(content, kind):
            return {"type": kind, "data": {"data": content}}
        case Other(kind, content):
            return {"type": kind, "data": dict(content)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "data": {"text": text}}


def _field(data: Mapping[str, Any], name: str) -> str:
    """A field as a string; "" where it is missing or no plain value."""
    value = data.get(name)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _base64_address(content: bytes) -> str:
    return "base64://" + base64.b64encode(content).decode("ascii")


def _not_content(value: object) -> str:
    return (
        f"cannot send a value of type {type(value).__name__}: "
        "send a str, a segment such as Text or Image, or a list of these"
    )

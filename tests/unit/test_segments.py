"""Segments as bot authors see them, to and from the wire."""

from __future__ import annotations

from typing import Any

import pytest

from pallas.errors import AppError
from pallas.segments import (
    At,
    AtAll,
    Card,
    Content,
    Face,
    Forward,
    Image,
    Other,
    Quote,
    Record,
    Segment,
    Text,
    Video,
    from_wire,
    to_wire,
)


@pytest.mark.parametrize(
    "segment",
    [
        Text("hello"),
        At("80001"),
        AtAll(),
        Face("14"),
        Image("https://example.invalid/a.png"),
        Image("a.png", summary="[cat]"),
        Record("a.amr"),
        Video("a.mp4"),
        Quote("-42"),
        Forward("abc"),
        Card('{"a":1}'),
        Card("<a/>", "xml"),
        Other("poke", {"type": "1", "id": "2"}),
    ],
)
def test_what_is_written_is_read_back(segment: Segment) -> None:
    assert from_wire(to_wire(segment)) == (segment,)


@pytest.mark.parametrize(
    "content, wire",
    [
        ("", []),
        ("hi", [{"type": "text", "data": {"text": "hi"}}]),
        (["a", Face("1"), "", "b"], ["a", {"type": "face", "data": {"id": "1"}}, "b"]),
        ((part for part in ("a",)), ["a"]),
        ([], []),
    ],
)
def test_text_segments_and_lists_of_both_can_be_sent(content: Content, wire: list[Any]) -> None:
    expected = [{"type": "text", "data": {"text": part}} if isinstance(part, str) else part for part in wire]
    assert to_wire(content) == expected


def test_text_that_looks_like_a_code_is_sent_as_text() -> None:
    typed = "[CQ:at,qq=all]&#91;"
    assert to_wire(typed) == [{"type": "text", "data": {"text": typed}}]


@pytest.mark.parametrize("content", [None, 5, b"bytes", {"type": "text"}, ["a", 5], [["a"]]])
def test_anything_else_is_refused_with_what_to_send_instead(content: Any) -> None:
    with pytest.raises(AppError, match="send a str, a segment such as Text or Image, or a list of these"):
        to_wire(content)


@pytest.mark.parametrize(
    "wire, segment",
    [
        ({"type": "at", "data": {"qq": "all"}}, AtAll()),
        ({"type": "at", "data": {"qq": 80001, "name": "@x"}}, At("80001")),
        ({"type": "at", "data": {}}, Other("at", {})),
        (
            {"type": "mface", "data": {"url": "u", "summary": "[cat]", "emoji_id": "e"}},
            Image("", "u", "[cat]", sticker=True),
        ),
        ({"type": "image", "data": {"file": "f", "url": "u", "emoji_id": "e"}}, Image("f", "u", sticker=True)),
        ({"type": "reply", "data": {"id": -7}}, Quote("-7")),
        ({"type": "text", "data": {"text": None}}, Text("")),
        ({"type": "image", "data": {"file": ["odd"], "url": True}}, Image("")),
        ({"type": "dice", "data": {"result": "3"}}, Other("dice", {"result": "3"})),
    ],
)
def test_what_ends_report_becomes_one_of_the_known_segments(wire: dict[str, Any], segment: Segment) -> None:
    assert from_wire([wire]) == (segment,)


def test_a_received_image_is_sent_again_by_its_address_since_its_name_is_the_accounts_own() -> None:
    assert to_wire(Image("LOCAL.jpg", "https://example.invalid/i")) == [
        {"type": "image", "data": {"file": "https://example.invalid/i"}}
    ]


def test_an_image_can_be_made_of_bytes() -> None:
    assert to_wire(Image.of(b"\x89PNG")) == [{"type": "image", "data": {"file": "base64://iVBORw=="}}]
    assert to_wire(Record.of(b"x")) == [{"type": "record", "data": {"file": "base64://eA=="}}]

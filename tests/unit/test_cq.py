"""CQ strings: what they mean, and that nothing a peer sends can break or slow their parser."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas.onebot import cq


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "data": {"text": value}}


@pytest.mark.parametrize(
    "string, segments",
    [
        ("", []),
        ("plain", [text("plain")]),
        ("[CQ:at,qq=1]", [{"type": "at", "data": {"qq": "1"}}]),
        (
            "a[CQ:at,qq=1] b[CQ:face,id=2]c",
            [
                text("a"),
                {"type": "at", "data": {"qq": "1"}},
                text(" b"),
                {"type": "face", "data": {"id": "2"}},
                text("c"),
            ],
        ),
        ("&#91;1,2&#93;&amp;3", [text("[1,2]&3")]),
        ("[CQ:x,u=a&amp;b=1&#44;2&#91;&#93;]", [{"type": "x", "data": {"u": "a&b=1,2[]"}}]),
        ("[CQ:shake]", [{"type": "shake", "data": {}}]),
        ("[CQ:x,novalue,=nokey,k=]", [{"type": "x", "data": {"novalue": "", "k": ""}}]),
        # A person typed an escape: it comes escaped once more and must come out as typed.
        ("&amp;#91;CQ:at,qq=1&amp;#93;", [text("&#91;CQ:at,qq=1&#93;")]),
        # No codes: these stay text.
        ("[CQ:at,qq=1", [text("[CQ:at,qq=1")]),
        ("[CQ:]", [text("[CQ:]")]),
        ("[cq:at,qq=1]", [text("[cq:at,qq=1]")]),
        ("[CQ:at,qq=[1]]", [text("[CQ:at,qq=[1]]")]),
        ("& &lt; &#44;", [text("& &lt; &#44;")]),
        ("[CQ:a[CQ:at,qq=1]", [text("[CQ:a"), {"type": "at", "data": {"qq": "1"}}]),
    ],
)
def test_a_cq_string_is_read_as_its_segments(string: str, segments: list[dict[str, Any]]) -> None:
    assert cq.parse(string) == segments


KINDS = st.text("abcdefgh_0", min_size=1, max_size=8).filter(lambda kind: kind != "text")
KEYS = st.text(st.characters(exclude_characters=",=[]&", codec="utf-8"), min_size=1, max_size=8)
WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
CODES = st.builds(lambda kind, data: {"type": kind, "data": data}, KINDS, st.dictionaries(KEYS, WORDS, max_size=4))
TEXTS = st.builds(text, WORDS.filter(bool))


def written(segments: list[dict[str, Any]]) -> str:
    """The CQ string of segments, as an end writes it."""
    parts = []
    for segment in segments:
        if segment["type"] == "text":
            parts.append(escaped(segment["data"]["text"]))
        else:
            data = segment["data"].items()
            codes = "".join(f",{key}={escaped(value).replace(',', '&#44;')}" for key, value in data)
            parts.append(f"[CQ:{segment['type']}{codes}]")
    return "".join(parts)


def escaped(value: str) -> str:
    return value.replace("&", "&amp;").replace("[", "&#91;").replace("]", "&#93;")


@settings(deadline=None)
@given(st.lists(st.one_of(CODES, TEXTS), max_size=8))
def test_what_was_written_is_read_back_with_neighbouring_texts_joined(segments: list[dict[str, Any]]) -> None:
    joined: list[dict[str, Any]] = []
    for segment in segments:
        if joined and segment["type"] == joined[-1]["type"] == "text":
            joined[-1] = text(joined[-1]["data"]["text"] + segment["data"]["text"])
        else:
            joined.append(segment)
    assert cq.parse(written(segments)) == joined


@settings(deadline=None)
@given(st.text("[]CQ:,=&#419;amp x", max_size=60))
def test_any_string_is_read_without_an_error(string: str) -> None:
    for segment in cq.parse(string):
        assert isinstance(segment["type"], str)
        assert all(isinstance(value, str) for value in segment["data"].values())


@pytest.mark.parametrize("unit", ["[CQ:", "[CQ:a,", "[CQ:a,b=", "[", "]", "[CQ:a]", "&amp;", "[CQ:a,k=v", ","])
def test_hostile_repetition_takes_linear_time(unit: str) -> None:
    def cost(length: int) -> float:
        string = unit * (length // len(unit))
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            cq.parse(string)
            best = min(best, time.process_time() - start)
        return best

    # 32 times the length: linear code takes about 32 times as long, quadratic code a thousand times.
    assert cost(640_000) < 300 * max(cost(20_000), 0.0002)

"""Text from outside is shown bounded, on one line, and with nothing in it that hides."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.untrusted import visible


@pytest.mark.parametrize(
    "text, shown",
    [
        ("", ""),
        ("阿柴 bot", "阿柴 bot"),
        ("a\u202eb", "a\\u202eb"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("a\r\nb\x00\x1b[31m", "a\\u000d\\u000ab\\u0000\\u001b[31m"),
        ("\u2028\u0085", "\\u2028\\u0085"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("👩\u200d👧", "👩\u200d👧"),
    ],
)
def test_shows_what_would_hide(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_cuts_between_escapes_and_says_so() -> None:
    assert visible("\x00" * 100, 16) == "\\u0000\\u0000…"
    assert visible("x" * 64) == "x" * 64
    assert visible("x" * 65) == "x" * 63 + "…"


@given(st.text(), st.integers(8, 80))
def test_result_is_bounded_and_encodes(text: str, limit: int) -> None:
    shown = visible(text, limit)
    assert len(shown) <= limit
    shown.encode()
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cs", "Zl", "Zp"}

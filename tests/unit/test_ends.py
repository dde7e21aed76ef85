"""Telling the implementations apart, and what is believed of each."""

from __future__ import annotations

from typing import Any

import pytest

from pallas.onebot.ends import End, facts, identify, sequenced


@pytest.mark.parametrize(
    "user_agent, info, end, version",
    [
        ("OneBot/11", None, End.NAPCAT, ""),
        ("LLOneBot/7.0.2", None, End.LLONEBOT, "7.0.2"),
        ("Lagrange.OneBot", None, End.LAGRANGE, ""),
        ("CQHttp/4.15.0", None, End.GOCQ, ""),
        ("", None, End.UNKNOWN, ""),
        ("curl/8.0", None, End.UNKNOWN, ""),
        ("OneBot/11", {"app_name": "NapCat.Onebot", "app_version": "4.18.19"}, End.NAPCAT, "4.18.19"),
        ("OneBot/11", {"app_name": "LLOneBot", "app_version": "7.0.2"}, End.LLONEBOT, "7.0.2"),
        ("LLOneBot/8.1.7", {"app_name": "LLBot", "app_version": "8.1.7"}, End.LLONEBOT, "8.1.7"),
        ("x", {"app_name": "LuckyLilliaBot", "app_version": "8"}, End.LLONEBOT, "8"),
        ("x", {"app_name": "Lagrange.OneBot", "app_version": "0.0.3"}, End.LAGRANGE, "0.0.3"),
        ("CQHttp/4.15.0", {"app_name": "go-cqhttp", "app_version": "v1.2.0"}, End.GOCQ, "v1.2.0"),
        # What it says of itself is unknown: the header's guess stays.
        ("Lagrange.OneBot", {"app_name": "mini-end", "app_version": "0"}, End.LAGRANGE, "0"),
        ("LLOneBot/7.0.2", {"app_name": None, "app_version": 7}, End.LLONEBOT, "7.0.2"),
        ("LLOneBot/7.0.2", {}, End.LLONEBOT, "7.0.2"),
    ],
)
def test_an_end_is_known_by_its_header_and_better_by_what_it_says(
    user_agent: str, info: dict[str, Any] | None, end: End, version: str
) -> None:
    assert identify(user_agent, info) == (end, version)


@pytest.mark.parametrize(
    "end, version, expected",
    [
        (End.NAPCAT, "4.18.19", True),
        (End.NAPCAT, "4.8.0", True),
        (End.NAPCAT, "4.7.99", None),
        (End.NAPCAT, "", None),
        (End.LLONEBOT, "7.0.2", True),
        (End.LLONEBOT, "v8.1", True),
        (End.LLONEBOT, "4.1", None),
        (End.LAGRANGE, "", True),
        (End.GOCQ, "v1.2.0", True),
        (End.UNKNOWN, "99", None),
        (End.NAPCAT, "9" * 100_000, None),
    ],
)
def test_only_ends_that_surely_report_sequences_are_called_sequenced(
    end: End, version: str, expected: bool | None
) -> None:
    assert sequenced(end, version) is (True if version == "9" * 100_000 else expected)


def test_every_end_has_facts_and_knows_how_it_refuses_an_action() -> None:
    assert {end: facts(end).no_such_action for end in End} == {
        End.NAPCAT: {1404},
        End.LLONEBOT: {1404},
        End.LAGRANGE: {404},
        End.GOCQ: {404},
        End.UNKNOWN: {404, 1404},
    }
    assert {end for end in End if not facts(end).honest_online} == {End.LAGRANGE, End.UNKNOWN}
    assert all(facts(end).heartbeat_ms > 0 for end in End)

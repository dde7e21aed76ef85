"""Strangers decide how often something happens, not how large the log becomes."""

from __future__ import annotations

import pytest
from structlog.testing import CapturingLogger

from pallas.log_limit import LimitedLog, LogLimit


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def mono(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def test_the_first_lines_of_a_minute_pass_and_the_rest_is_counted(time: Time) -> None:
    limit = LogLimit(per_min=3, mono=time.mono)
    assert [limit.passes("a") for _ in range(5)] == [0, 0, 0, None, None]
    time.now += 59.9
    assert limit.passes("a") is None
    time.now += 0.1
    assert limit.passes("a") == 3
    assert limit.passes("a") == 0


def test_keys_have_allowances_of_their_own(time: Time) -> None:
    limit = LogLimit(per_min=1, mono=time.mono)
    assert limit.passes("a") == 0
    assert limit.passes("a") is None
    assert limit.passes("b") == 0


def test_a_million_keys_need_no_more_room_and_lines_than_a_few(time: Time) -> None:
    limit = LogLimit(per_min=2, max_keys=10, mono=time.mono)
    passed = sum(limit.passes(f"key{number}") is not None for number in range(10_000))
    assert passed == 12
    assert len(limit) == 11


def test_keys_of_a_past_minute_make_room_and_their_counts_are_kept(time: Time) -> None:
    limit = LogLimit(per_min=1, max_keys=2, mono=time.mono)
    for key in ("a", "a", "a", "b"):
        limit.passes(key)
    time.now += 60
    assert limit.passes("c") == 0
    assert len(limit) <= 3
    time.now += 60
    assert sum(count for _, count in limit.ended()) == 2


def test_what_was_held_back_is_said_once_when_its_minute_is_over(time: Time) -> None:
    logger = CapturingLogger()
    limited = LimitedLog(LogLimit(per_min=2, mono=time.mono), logger)
    for _ in range(7):
        limited.warning("link.refused", "203.0.113.9", reason="wrong_token")
    limited.flush()
    time.now += 60
    limited.flush()
    limited.flush()
    lines = [(call.args, call.kwargs) for call in logger.calls]
    assert lines == [
        (("link.refused",), {"key": "203.0.113.9", "reason": "wrong_token"}),
        (("link.refused",), {"key": "203.0.113.9", "reason": "wrong_token"}),
        (("link.refused",), {"key": "203.0.113.9", "suppressed": 5}),
    ]


def test_without_a_flush_the_next_line_says_what_was_held_back(time: Time) -> None:
    logger = CapturingLogger()
    limited = LimitedLog(LogLimit(per_min=1, mono=time.mono), logger)
    for _ in range(4):
        limited.warning("frame.refused", "10001")
    time.now += 60
    limited.warning("frame.refused", "10001", reason="not_json")
    assert logger.calls[-1].kwargs == {"key": "10001", "reason": "not_json", "suppressed": 3}


def test_what_was_held_back_of_too_many_keys_is_said_together(time: Time) -> None:
    logger = CapturingLogger()
    limited = LimitedLog(LogLimit(per_min=1, max_keys=1, mono=time.mono), logger)
    for number in range(5):
        limited.warning("link.refused", f"203.0.113.{number}")
    time.now += 60
    limited.flush()
    assert logger.calls[-1].args == ("log.suppressed",)
    assert logger.calls[-1].kwargs == {"key": "others", "suppressed": 3}

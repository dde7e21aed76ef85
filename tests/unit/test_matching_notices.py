"""What one worker recognises of notices: each end stamps them with its own clock, and none gives them a sequence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from pallas.identity import notice_digest
from pallas.keys import notice_space
from pallas.model import Notice
from pallas.onebot.wire import parse
from shard.matching import Standing
from shard.notices import NoticeTable

SAMPLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "onebot-events.json").read_text("utf-8"))
SPACE = "700100200"
NEW, ANOTHER, AGAIN = Standing.NEW, Standing.ANOTHER, Standing.AGAIN


def happened(bot: str, at: int, **fields: str) -> Notice:
    given_fields = {"notice_type": "notify", "sub_type": "poke", "user_id": "7", "target_id": "8", **fields}
    event = {"post_type": "notice", "self_id": bot, "group_id": SPACE, "time": at, **given_fields}
    notice = parse(orjson.dumps(event), bot_id=bot)
    assert isinstance(notice, Notice)
    return notice


def notices(max_entries: int = 1000, keep_s: float = 120.0) -> NoticeTable:
    return NoticeTable(max_entries=max_entries, keep_s=keep_s, clocks_s=10)


def sightings(known: NoticeTable, *reports: Notice, now: float = 0.0) -> list[Standing]:
    return [
        known.observe(one.bot_id, notice_space(one.group_id), notice_digest(one), one.time_s, now)[0] for one in reports
    ]


@pytest.mark.parametrize("late_s, expected", [(-11, NEW), (-10, ANOTHER), (0, ANOTHER), (10, ANOTHER), (11, NEW)])
def test_a_notice_is_the_same_within_ten_seconds_of_anybodys_clock(late_s: int, expected: Standing) -> None:
    assert sightings(notices(), happened("1", 1000), happened("2", 1000 + late_s)) == [NEW, expected]


def test_trap_a_recall_reported_with_two_clocks_is_one() -> None:
    (events,) = [one["events"] for one in SAMPLES["traps"] if one["name"].startswith("notices carry")]
    reports = [parse(orjson.dumps(event), bot_id=str(event["self_id"])) for event in events]
    assert sightings(notices(), *(one for one in reports if isinstance(one, Notice))) == [NEW, ANOTHER]


def test_an_account_that_reports_the_same_thing_again_means_another_happening() -> None:
    known = notices()
    assert sightings(known, happened("1", 1000), happened("2", 1001)) == [NEW, ANOTHER]
    assert sightings(known, happened("1", 1002), happened("2", 1003)) == [NEW, ANOTHER]


def test_a_notice_that_any_account_pushes_again_is_a_replay() -> None:
    known = notices()
    assert sightings(known, happened("1", 1000), happened("2", 1003)) == [NEW, ANOTHER]
    assert sightings(known, happened("2", 1003), happened("1", 1000), happened("2", 1003)) == [AGAIN, AGAIN, AGAIN]


def test_a_replay_is_not_taken_for_the_next_happening() -> None:
    known = notices()
    assert sightings(known, happened("1", 1000), happened("2", 1001), happened("1", 1004)) == [NEW, ANOTHER, NEW]
    assert sightings(known, happened("2", 1001), happened("2", 1005)) == [AGAIN, ANOTHER]


def test_of_two_happenings_the_nearer_one_is_matched() -> None:
    known = notices()
    assert sightings(known, happened("1", 1000), happened("1", 1008)) == [NEW, NEW]
    _, near = known.observe("2", notice_space(SPACE), notice_digest(happened("2", 1007)), 1007, 0.0)
    assert near.time_s == 1008


@pytest.mark.parametrize("other", [{"target_id": "9"}, {"user_id": "9"}, {"sub_type": "honor"}])
def test_another_person_or_kind_is_another_notice(other: dict[str, str]) -> None:
    assert sightings(notices(), happened("1", 1000), happened("2", 1000, **other)) == [NEW, NEW]


def test_notices_are_forgotten_by_age_and_number() -> None:
    known = notices(max_entries=20, keep_s=10)
    for number in range(200):
        sightings(known, happened("1", 1000, user_id=str(number + 1)))
        assert len(known) <= 20
    assert len(known._sightings) == 20
    assert sightings(known, happened("1", 1000), now=10.1) == [NEW]
    assert (len(known), len(known._sightings)) == (1, 1)

"""The truth table: nine accounts of four implementations report three messages, and eight traps."""

from __future__ import annotations

import json
import time
import unicodedata
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas.identity import body_digest, is_stale, normal_text, notice_digest, seq16
from pallas.model import Message, Notice
from pallas.onebot.ends import End
from pallas.onebot.wire import parse

SAMPLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "onebot-events.json").read_text("utf-8"))
ENDS = {str(account): End(name) for name, one in SAMPLES["implementations"].items() for account in one["accounts"]}


def report(event: dict[str, Any]) -> Message:
    account = str(event["self_id"])
    message = parse(orjson.dumps(event), bot_id=account, end=ENDS[account])
    assert isinstance(message, Message)
    return message


def reports() -> dict[str, list[Message]]:
    found: defaultdict[str, list[Message]] = defaultdict(list)
    for one in SAMPLES["events"]:
        found[one["physical"]].append(report(one["event"]))
    return found


def trap(beginning: str) -> list[dict[str, Any]]:
    (events,) = [one["events"] for one in SAMPLES["traps"] if one["name"].startswith(beginning)]
    found: list[dict[str, Any]] = events
    return found


def said(*segments: tuple[str, dict[str, Any]], user_id: str = "80001", anonymous: str = "") -> Message:
    event = {
        "post_type": "message",
        "message_type": "group",
        "group_id": 1,
        "user_id": user_id,
        "message": [{"type": kind, "data": data} for kind, data in segments],
        "anonymous": {"flag": anonymous} if anonymous else None,
    }
    message = parse(orjson.dumps(event), bot_id="9")
    assert isinstance(message, Message)
    return message


def words(text: str, **who: str) -> bytes:
    return body_digest(said(("text", {"text": text}), **who))


@pytest.mark.parametrize("physical", ["P1", "P2", "P3"])
def test_all_nine_accounts_report_the_same_message(physical: str) -> None:
    seen = reports()[physical]
    truth = SAMPLES["physical"][physical]
    assert len({message.bot_id for message in seen}) == 9
    assert {message.seq for message in seen} == {truth["seq16"]}
    assert {message.time_s for message in seen} == {truth["time"]}
    assert {message.user_id for message in seen} == {str(truth["user_id"])}
    assert {message.group_id for message in seen} == {str(SAMPLES["group_id"])}
    assert len({body_digest(message) for message in seen}) == 1
    assert len({message.text for message in seen}) == 1


def test_the_text_and_the_mention_are_read_alike_from_every_form() -> None:
    assert {(message.text, message.mentions) for message in reports()["P3"]} == {(" 看这个 [1,2]&3", ("90001",))}


def test_an_honest_repeat_within_the_same_second_differs_by_its_sequence_alone() -> None:
    first, second = reports()["P1"], reports()["P2"]
    assert {body_digest(message) for message in first} == {body_digest(message) for message in second}
    assert {message.seq for message in first}.isdisjoint({message.seq for message in second})


def test_different_messages_have_different_bodies() -> None:
    assert {body_digest(m) for m in reports()["P1"]}.isdisjoint({body_digest(m) for m in reports()["P3"]})


def test_trap_a_replay_on_the_same_account_carries_the_same_message_id() -> None:
    first, second = map(report, trap("replay on the same account"))
    assert (first.bot_id, first.message_id) == (second.bot_id, second.message_id) == ("90001", "1439035978")


def test_trap_a_quote_that_one_account_could_not_find_changes_nothing() -> None:
    quoted, bare = map(report, trap("quoted message not found"))
    assert quoted.seq == bare.seq == 8
    assert body_digest(quoted) == body_digest(bare)
    assert quoted.mentions == bare.mentions == ("all",)


def test_trap_a_time_in_milliseconds_becomes_seconds() -> None:
    (event,) = trap("time in milliseconds")
    assert report(event).time_s == 1_790_000_000


def test_trap_the_string_form_and_the_array_form_are_the_same_message() -> None:
    array, string = map(report, trap("string message format"))
    assert array.seq == string.seq == 5
    assert body_digest(array) == body_digest(string)
    assert array.raw_segments == string.raw_segments


def test_trap_a_message_id_of_minus_one_is_no_id() -> None:
    (event,) = trap("go-cqhttp reports message_id -1")
    assert (report(event).message_id, report(event).seq) == ("", 5)


def test_trap_anonymous_members_are_different_people() -> None:
    first, second = map(report, trap("anonymous members"))
    assert first.user_id == second.user_id
    assert first.seq != second.seq
    assert body_digest(first) != body_digest(second)


def test_trap_account_local_ids_do_not_hide_the_shared_sequence() -> None:
    first, second = map(report, trap("LLOneBot before"))
    assert first.message_id != second.message_id
    assert first.seq == second.seq == 5


def test_trap_notices_are_the_same_whatever_clock_and_ids_they_carry() -> None:
    notices = [parse(orjson.dumps(event), bot_id=str(event["self_id"])) for event in trap("notices carry")]
    first, second = notices
    assert isinstance(first, Notice)
    assert isinstance(second, Notice)
    assert first.time_s != second.time_s
    assert notice_digest(first) == notice_digest(second)


def test_every_trap_of_the_table_is_tested_here() -> None:
    assert len(SAMPLES["traps"]) == 8


@pytest.mark.parametrize(
    "real_seq, message_seq, message_id, packed, expected",
    [
        ("131077", 99, 99, False, 5),
        (131077, None, 99, False, 5),
        (None, 131077, 99, False, 5),
        ("65536", None, 99, False, 0),
        # copies of the message id
        (None, 99, 99, False, None),
        (None, "99", 99, False, None),
        (None, 99, "99", False, None),
        ("99", 99, 99, False, None),
        (None, 99, "abc", False, 99),
        # no sequences
        (None, None, 99, False, None),
        ("0", 0, 99, False, None),
        ("", "", 99, False, None),
        ("-5", -5, 99, False, None),
        ("abc", [], 99, False, None),
        (True, True, 99, False, None),
        (5.0, 5.0, 99, False, None),
        ("５", {}, 99, False, None),
        ("9" * 21, None, 99, False, None),
        ("0", 131077, 99, False, 5),
        # in the upper half of the message id
        (None, None, (7 << 16) | 0xBEEF, True, 7),
        (None, None, ((0xFFFE << 16) | 1) - 2**32, True, 0xFFFE),
        (None, None, str((7 << 16) | 1), True, 7),
        (None, None, 0xBEEF, True, 0),
        (None, None, 0, True, None),
        (None, None, -1, True, None),
        (None, None, None, True, None),
        (None, None, "abc", True, None),
        (None, 131077, (7 << 16) | 1, True, 5),
    ],
)
def test_a_sequence_is_taken_only_from_what_is_one(
    real_seq: object, message_seq: object, message_id: object, packed: bool, expected: int | None
) -> None:
    assert seq16(real_seq, message_seq, message_id, packed=packed) == expected


@pytest.mark.parametrize(
    "one, other",
    [
        ("hello", " hello "),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\n b"),
        ("a  \t b", "a b"),
        ("a\u3000b\u00a0c", "a b c"),
        ("e\u0301", "\u00e9"),
        ("@全体成员 集合", " 集合"),
        ("集合@全体成员", "集合"),
        ("@全体成员", ""),
    ],
)
def test_texts_that_ends_render_differently_are_the_same(one: str, other: str) -> None:
    assert words(one) == words(other)


@pytest.mark.parametrize(
    "one, other", [("a", "b"), ("a b", "ab"), ("签到", "签到1"), ("A", "a"), ("x" * 5000, "x" * 5001), ("", "x")]
)
def test_texts_that_differ_stay_different(one: str, other: str) -> None:
    assert words(one) != words(other)


def test_the_same_words_of_two_people_are_two_messages() -> None:
    assert words("a", user_id="1") != words("a", user_id="2")
    assert words("a", anonymous="x") != words("a", anonymous="y")
    assert words("1:a", user_id="1") != words("a", user_id="11")


def test_mentions_quotes_and_faces_beside_text_do_not_count() -> None:
    extras = [("reply", {"id": "5"}), ("at", {"qq": "7"}), ("face", {"id": "1"}), ("image", {"file": "x"})]
    assert body_digest(said(("text", {"text": "hi"}), *extras)) == words("hi")


MD5 = "9F86D081884C7D659A2FEAA0C55AD015"
GUID = "{9F86D081-884C-7D65-9A2F-EAA0C55AD015}.jpg"


@pytest.mark.parametrize(
    "data",
    [
        {"file": f"{MD5}.jpg", "url": "https://example.invalid/?rkey=1"},
        {"file": f"{MD5.lower()}.image"},
        {"file": f"https://example.invalid/{'0' * 32}", "filename": f"{MD5}.jpg"},
        {"file": GUID},
    ],
)
def test_an_image_without_text_is_known_by_its_visible_md5(data: dict[str, Any]) -> None:
    assert body_digest(said(("image", data))) == body_digest(said(("image", {"file": f"{MD5}.jpg"})))
    assert body_digest(said(("image", data))) != body_digest(said(("image", {"file": f"{'0' * 32}.jpg"})))


def test_an_image_whose_digest_is_hidden_is_just_an_image() -> None:
    plain = body_digest(said(("image", {})))
    for data in ({"file": "abc.jpg"}, {"file": f"https://example.invalid/{MD5}"}, {"file": [MD5]}, {"file": "a" * 33}):
        assert body_digest(said(("image", data))) == plain


def test_a_shop_sticker_is_the_same_as_image_as_segment_and_as_text() -> None:
    emoji = "0123456789abcdef0123456789abcdef"
    as_image = said(("image", {"file": f"{emoji}.gif", "emoji_id": emoji, "summary": "[好的]"}))
    as_segment = said(("mface", {"emoji_id": emoji, "summary": "[好的]"}))
    as_text = said(("text", {"text": "[好的]"}))
    assert body_digest(as_image) == body_digest(as_segment) == body_digest(as_text)
    assert words("[好的] 嗯") != words("[好的]")


@pytest.mark.parametrize(
    "one, other, same",
    [
        ([("record", {"file": "a"})], [("record", {"file": "b"})], True),
        ([("video", {})], [("record", {})], False),
        ([("forward", {"id": "1"})], [("json", {"data": '{"app":"com.tencent.multimsg"}'})], True),
        ([("json", {"data": '{"token":1}'})], [("json", {"data": '{"token":2}'})], True),
        ([("json", {"data": "x"})], [("forward", {})], False),
        ([("face", {"id": "1"})], [("face", {"id": "2"})], True),
        # Dice and the like are dropped by one end.
        ([("dice", {})], [], True),
        ([("face", {"id": "358"})], [], True),
        ([("face", {"id": 1})], [], False),
        ([("reply", {"id": "1"}), ("at", {"qq": "5"})], [], True),
        ([("image", {}), ("image", {})], [("image", {})], False),
        ([("poke", {})], [("shake", {})], True),
        ([("at", {"qq": "all"})], [("text", {"text": "@全体成员"})], True),
    ],
)
def test_without_text_the_classes_of_the_segments_are_compared(
    one: list[tuple[str, dict[str, Any]]], other: list[tuple[str, dict[str, Any]]], same: bool
) -> None:
    assert (body_digest(said(*one)) == body_digest(said(*other))) is same


def notice(**fields: Any) -> bytes:
    facts: dict[str, Any] = {
        "bot_id": "9",
        "notice_type": "group_ban",
        "sub_type": "ban",
        "group_id": "1",
        "user_id": "2",
        "operator_id": "3",
        "target_id": "",
        "time_s": 5,
        "detail": "600",
        "raw": {},
    }
    return notice_digest(Notice(**facts | fields))


@pytest.mark.parametrize("fields", [{"bot_id": "8"}, {"time_s": 99}, {"raw": {"message_id": 5}}])
def test_what_only_the_reporter_knows_does_not_tell_notices_apart(fields: dict[str, Any]) -> None:
    assert notice(**fields) == notice()


@pytest.mark.parametrize("field", ["notice_type", "sub_type", "user_id", "operator_id", "target_id", "detail"])
def test_type_people_and_detail_tell_notices_apart(field: str) -> None:
    assert notice(**{field: "other"}) != notice()


def test_a_notice_and_a_message_never_look_alike() -> None:
    assert len({notice(), words("600"), body_digest(said())}) == 3


def test_digests_have_their_fixed_sizes_and_never_change_between_processes() -> None:
    # Stored in Redis and compared by workers of other versions: a change here is a change of format.
    assert words("签到").hex() == "80fe360a0ab66c51"
    assert notice().hex() == "b7f2a697b01db463"


@pytest.mark.parametrize(
    "time_s, stale", [(1000, False), (400, False), (399, True), (1, True), (0, False), (5000, False), (-5, False)]
)
def test_an_event_is_stale_by_age_alone(time_s: int, stale: bool) -> None:
    assert is_stale(time_s, 1000.0, 600) is stale


@settings(deadline=None)
@given(st.text(max_size=50))
def test_normalising_twice_changes_nothing_and_nothing_raises(text: str) -> None:
    once = normal_text(text)
    assert "@全体成员" in once or normal_text(once) == once
    assert unicodedata.is_normalized("NFC", once)


def test_a_hostile_run_of_combining_marks_costs_no_more_than_its_length() -> None:
    def cost(length: int) -> float:
        message = said(("text", {"text": "a" + "\u0315\u0300" * length}))
        start = time.process_time()
        body_digest(message)
        return time.process_time() - start

    # 32 times the length: linear code takes about 32 times as long, quadratic code a thousand times.
    assert min(cost(320_000) for _ in range(3)) < 300 * max(cost(10_000), 0.0002)

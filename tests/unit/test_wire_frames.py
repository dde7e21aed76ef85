"""Everything else that comes over a link, and what is sent back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pallas.errors import AppError, BadFrame
from pallas.model import ActionReply, Heartbeat, Lifecycle, Message, Notice, Reason, Request
from pallas.onebot.decode import Limits
from pallas.onebot.wire import action, parse

BOT = "90001"
TEXT = b'{"post_type":"message","message_type":"group","group_id":1,"user_id":2,"message":"%s"}'


def read(frame: dict[str, Any] | bytes) -> Any:
    return parse(frame if isinstance(frame, bytes) else json.dumps(frame).encode(), bot_id=BOT)


def reason(frame: dict[str, Any] | bytes, **limits: int) -> str:
    data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
    with pytest.raises(BadFrame) as caught:
        parse(data, bot_id=BOT, limits=Limits(**limits))
    return caught.value.reason


@pytest.mark.parametrize(
    "frame, expected",
    [
        (b"", Reason.NOT_JSON),
        (b"{", Reason.NOT_JSON),
        (b"hello", Reason.NOT_JSON),
        (b'{"a":1}x', Reason.NOT_JSON),
        (b'{"post_type":"message",}', Reason.NOT_JSON),
        (b'{"a":NaN}', Reason.NOT_JSON),
        (b'{"a":Infinity}', Reason.NOT_JSON),
        (b'{"a":-Infinity}', Reason.NOT_JSON),
        (b'{"a":"\x00"}', Reason.NOT_JSON),
        (b"\xef\xbb\xbf{}", Reason.NOT_JSON),
        (b'{"a":"\xff"}', Reason.NOT_UTF8),
        (b'{"a":"\xed\xa0\x80"}', Reason.NOT_UTF8),
        (b'{"a":"\xe4\xbd"}', Reason.NOT_UTF8),
        (b"\x80\x81\x82", Reason.NOT_UTF8),
        (b"[]", Reason.WRONG_TYPE),
        (b"null", Reason.WRONG_TYPE),
        (b"5", Reason.WRONG_TYPE),
        (b'"text"', Reason.WRONG_TYPE),
        (b"{}", Reason.UNKNOWN_POST_TYPE),
        (b'{"echo":"1"}', Reason.UNKNOWN_POST_TYPE),
        (b'{"post_type":"rumour"}', Reason.UNKNOWN_POST_TYPE),
        (b'{"post_type":null}', Reason.UNKNOWN_POST_TYPE),
        (b'{"post_type":["message"]}', Reason.UNKNOWN_POST_TYPE),
        (b'{"post_type":"meta_event"}', Reason.UNKNOWN_POST_TYPE),
        (b'{"post_type":"meta_event","meta_event_type":"other"}', Reason.UNKNOWN_POST_TYPE),
        (b'{"post_type":"notice"}', Reason.UNKNOWN_POST_TYPE),
        (b'{"post_type":"request","request_type":"other"}', Reason.UNKNOWN_POST_TYPE),
        (b"[" * 100_000, Reason.TOO_DEEP),
        (b"[" * 500 + b"]" * 500, Reason.TOO_DEEP),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, Reason.TOO_DEEP),
    ],
)
def test_a_frame_that_cannot_be_used_is_refused_with_its_reason(frame: bytes, expected: str) -> None:
    assert reason(frame) == expected


def test_a_frame_is_refused_by_its_size_before_it_is_read() -> None:
    assert reason(b"x" * 1001, max_bytes=1000) == Reason.TOO_LARGE
    assert reason(b"x" * 1000, max_bytes=1000) == Reason.NOT_JSON


def test_nesting_is_bounded_exactly_and_brackets_in_text_do_not_count() -> None:
    def nested(depth: int) -> bytes:
        inner = b"[" * (depth - 1) + b"]" * (depth - 1)
        return b'{"status":"ok","retcode":0,"data":' + inner + b"}"

    assert isinstance(parse(nested(64), bot_id=BOT), ActionReply)
    assert reason(nested(65)) == Reason.TOO_DEEP
    assert read(TEXT % (b"[" * 5000)).text == "[" * 5000


def test_an_error_text_never_shows_what_was_said() -> None:
    for frame in (b'{"post_type":"my secret words"}', b'{"a":"my secret words', b'{"a":"my secret words\xff"}'):
        with pytest.raises(BadFrame) as caught:
            read(frame)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "escaped, text",
    [
        (rb"a\ud800b", "a\ufffdb"),
        (rb"a\udc00b", "a\ufffdb"),
        (rb"\ud83d", "\ufffd"),
        (rb"\uD83D\ud83d\ude00", "\ufffd😀"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\\ud800 \ud800", "\\ud800 \ufffd"),
        (rb"\n\ud800\"", '\n\ufffd"'),
    ],
)
def test_half_of_a_surrogate_pair_is_replaced_and_counted(escaped: bytes, text: str) -> None:
    repairs: list[int] = []
    message = parse(TEXT % escaped, bot_id=BOT, on_repaired=lambda: repairs.append(1))
    assert isinstance(message, Message)
    assert (message.text, len(repairs)) == (text, 1)


@pytest.mark.parametrize("escaped", [rb"\ud83d\ude00", rb"\\ud800", b"plain", rb"\u0000"])
def test_what_needs_no_repair_is_not_counted_as_one(escaped: bytes) -> None:
    repairs: list[int] = []
    parse(TEXT % escaped, bot_id=BOT, on_repaired=lambda: repairs.append(1))
    assert repairs == []


def test_a_surrogate_and_an_id_beyond_64_bits_in_one_frame_both_survive() -> None:
    frame = (TEXT % rb"a\ud800").replace(b'"group_id":1', b'"group_id":36893488147419103233')
    message = read(frame)
    assert (message.group_id, message.text) == ("36893488147419103233", "a\ufffd")


def test_a_repaired_frame_is_still_held_to_the_rules() -> None:
    assert reason(rb'{"a":"\ud800",}') == Reason.NOT_JSON
    assert reason(rb'{"a":"\ud800","b":NaN}') == Reason.NOT_JSON
    assert reason(b'{"a":"\\ud800\xff"}') == Reason.NOT_UTF8


def test_a_lifecycle_event_is_read() -> None:
    event = {
        "post_type": "meta_event",
        "meta_event_type": "lifecycle",
        "sub_type": "connect",
        "time": 5,
        "self_id": 90001,
    }
    assert read(event) == Lifecycle(BOT, "connect", 5)


@pytest.mark.parametrize(
    "status, online",
    [
        ({"online": True, "good": True}, True),
        ({"online": False}, False),
        ({"online": None}, None),
        ({"online": "yes"}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_a_heartbeat_says_online_only_where_the_end_does(status: Any, online: bool | None) -> None:
    event = {"post_type": "meta_event", "meta_event_type": "heartbeat", "interval": 5000, "status": status, "time": 5}
    assert read(event) == Heartbeat(BOT, online, 5000, 5)


@pytest.mark.parametrize("interval", [None, "5000", -1, True, 2.5])
def test_a_heartbeat_without_a_usable_interval_names_none(interval: Any) -> None:
    assert read({"post_type": "meta_event", "meta_event_type": "heartbeat", "interval": interval}).interval_ms == 0


def test_a_notice_is_read_with_its_people() -> None:
    event = {
        "post_type": "notice",
        "notice_type": "group_ban",
        "sub_type": "ban",
        "group_id": 1,
        "user_id": 2,
        "operator_id": "3",
        "duration": 600,
        "time": 1_790_000_000_000,
        "self_id": 90001,
    }
    assert read(event) == Notice(BOT, "group_ban", "ban", "1", "2", "3", "", 1_790_000_000, "600", event)


@pytest.mark.parametrize(
    "fields, detail",
    [
        ({"duration": 0}, "0"),
        ({"file": {"id": "/x", "name": "a.zip", "size": 5}}, "a.zip"),
        ({"card_new": "new", "card_old": "old"}, "new"),
        ({"honor_type": "talkative"}, "talkative"),
        ({"likes": [{"emoji_id": "76", "count": 1}, {"emoji_id": 77}, "x"]}, "76,77"),
        ({"file": "x"}, ""),
        ({"message_id": 5}, ""),
        ({}, ""),
    ],
)
def test_a_notice_keeps_what_else_tells_it_apart(fields: dict[str, Any], detail: str) -> None:
    assert read({"post_type": "notice", "notice_type": "x", **fields}).detail == detail


@pytest.mark.parametrize("value", [..., None, 0, "0", "", -1])
def test_a_notice_may_lack_people_but_a_notice_of_a_group_not_its_group(value: Any) -> None:
    given = {} if value is ... else {"group_id": value, "user_id": value, "target_id": value}
    poke = read({"post_type": "notice", "notice_type": "notify", "sub_type": "poke", **given})
    assert (poke.group_id, poke.user_id, poke.target_id) == ("", "", "")
    assert reason({"post_type": "notice", "notice_type": "group_recall", **given}) == Reason.BAD_ID


@pytest.mark.parametrize("value", [True, 1.5, [], {}])
def test_an_id_of_the_wrong_type_in_a_notice_is_refused(value: Any) -> None:
    assert reason({"post_type": "notice", "notice_type": "notify", "user_id": value}) == Reason.BAD_ID


def test_requests_are_read_and_refused_where_they_could_not_be_answered() -> None:
    event = {
        "post_type": "request",
        "request_type": "group",
        "sub_type": "add",
        "group_id": 1,
        "user_id": 2,
        "comment": "please",
        "flag": 77,
        "time": 5,
    }
    assert read(event) == Request(BOT, "group", "add", "1", "2", "please", "77", 5, event)
    assert read(event | {"request_type": "friend", "group_id": None}).group_id == ""
    assert reason(event | {"group_id": 0}) == Reason.BAD_ID
    assert reason(event | {"user_id": 0}) == Reason.BAD_ID
    odd: list[Any] = [None, "", [], True]
    assert {reason(event | {"flag": flag}) for flag in odd} == {Reason.WRONG_TYPE}


@pytest.mark.parametrize("echo", ["7", 7, "", None, {"seq": 1}, [1, "a"], True, 1.5, 2**70])
def test_an_echo_comes_back_unchanged_whatever_its_type(echo: Any) -> None:
    reply = read({"status": "ok", "retcode": 0, "data": None, "echo": echo})
    assert reply.echo == echo
    assert type(reply.echo) is type(echo)


def test_a_missing_echo_is_none() -> None:
    assert read({"status": "ok", "retcode": 0}).echo is None


@pytest.mark.parametrize(
    "fields, ok, retcode",
    [
        ({"status": "ok", "retcode": 0}, True, 0),
        ({"status": "async", "retcode": 1}, True, 1),
        ({"status": "failed", "retcode": 1404}, False, 1404),
        ({"status": "failed", "retcode": 0}, False, 0),
        ({"status": "ok", "retcode": 100}, False, 100),
        ({"status": "ok"}, True, 0),
        ({"status": "failed"}, False, 0),
        ({"retcode": 0}, True, 0),
        ({"retcode": -5}, False, -5),
        ({"status": "failed", "retcode": "1400"}, False, 1400),
        ({"status": "ok", "retcode": True}, True, 0),
    ],
)
def test_an_answer_is_good_only_if_status_and_code_agree(fields: dict[str, Any], ok: bool, retcode: int) -> None:
    reply = read(fields)
    assert (reply.ok, reply.retcode) == (ok, retcode)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"message": "no such action", "wording": "no such action"}, "no such action"),
        ({"msg": "SEND_MSG_API_ERROR", "wording": "refused"}, "SEND_MSG_API_ERROR: refused"),
        ({"wording": "w"}, "w"),
        ({"message": None, "wording": ["x"]}, ""),
        ({"message": "x" * 5000}, "x" * 500),
        ({}, ""),
    ],
)
def test_the_words_of_a_failure_are_kept_from_whatever_field_they_stand_in(
    fields: dict[str, Any], message: str
) -> None:
    assert read({"status": "failed", "retcode": 1, **fields}).message == message


@pytest.mark.parametrize(
    "stream, data, more",
    [
        ("normal-action", {"type": "stream"}, False),
        ("stream-action", {"type": "stream", "data_type": "file_chunk"}, True),
        ("stream-action", {"type": "response", "data_type": "file_complete"}, False),
        ("stream-action", {"type": "error", "data_type": "error"}, False),
        ("stream-action", {"type": "stream", "received_chunks": 3}, False),
        ("stream-action", None, False),
        (None, {"type": "stream"}, False),
    ],
)
def test_a_stream_of_answers_goes_on_until_its_last_frame(stream: str | None, data: Any, more: bool) -> None:
    assert read({"status": "ok", "retcode": 0, "data": data, "echo": "1", "stream": stream}).more is more


def test_a_message_id_beyond_64_bits_in_an_answer_survives() -> None:
    assert read({"status": "ok", "retcode": 0, "data": {"message_id": 2**70 + 1}}).data == {"message_id": 2**70 + 1}


@pytest.mark.parametrize(
    "value, written",
    [
        ("700100200", 700100200),
        (700100200, 700100200),
        ("-77", -77),
        (str(2**53), 2**53),
        (str(2**53 + 1), str(2**53 + 1)),
        (2**53 + 1, str(2**53 + 1)),
        ("9" * 30, "9" * 30),
        ("群-a", "群-a"),
        ("", ""),
        ("１２", "１２"),
        (True, True),
        (None, None),
    ],
)
def test_an_id_is_sent_as_a_number_where_every_end_reads_it_exactly(value: Any, written: Any) -> None:
    frame = json.loads(action("send_group_msg", {"group_id": value, "message": "5"}, "e-1"))
    assert frame == {"action": "send_group_msg", "params": {"group_id": written, "message": "5"}, "echo": "e-1"}


@pytest.mark.parametrize("value", [object(), {1, 2}, "\ud800", 2**70, b"x"])
def test_parameters_that_are_no_json_are_the_authors_error_and_are_not_shown(value: Any) -> None:
    with pytest.raises(AppError, match="the parameters of send_msg cannot be written as JSON"):
        action("send_msg", {"message": value}, "1")

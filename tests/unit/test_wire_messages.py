"""Message frames of the four implementations: what is read out of them and what is refused."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from pallas.errors import BadFrame
from pallas.model import Message, Reason
from pallas.onebot.decode import Limits
from pallas.onebot.ends import End
from pallas.onebot.wire import parse, sender_of

BOT = "90001"


def event(**fields: Any) -> dict[str, Any]:
    """A plain group message; a field that is set to `...` is left out."""
    plain: dict[str, Any] = {
        "self_id": 90001,
        "post_type": "message",
        "message_type": "group",
        "sub_type": "normal",
        "time": 1_790_000_000,
        "group_id": 700100200,
        "user_id": 80001,
        "message_id": 77,
        "message": [{"type": "text", "data": {"text": "hi"}}],
        "sender": {"user_id": 80001, "nickname": "nick", "card": "card", "role": "admin"},
    }
    return {key: value for key, value in (plain | fields).items() if value is not ...}


def read(frame: bytes | dict[str, Any], *, bot_id: str = BOT, end: End = End.UNKNOWN) -> Message:
    message = parse(frame if isinstance(frame, bytes) else json.dumps(frame).encode(), bot_id=bot_id, end=end)
    assert isinstance(message, Message)
    return message


def reason(frame: bytes | dict[str, Any], *, bot_id: str = BOT, limits: Limits = Limits()) -> str:  # noqa: B008
    with pytest.raises(BadFrame) as caught:
        parse(frame if isinstance(frame, bytes) else json.dumps(frame).encode(), bot_id=bot_id, limits=limits)
    return caught.value.reason


def costume(end: End, account: int, seq: int, text: str) -> dict[str, Any]:
    """One physical message as an account of each implementation reports it."""
    group, user, when, rand = 700100200, 80001, 1_790_000_000, 0x5A17
    segments = [{"type": "text", "data": {"text": text}}]
    shape = event(self_id=account, group_id=group, user_id=user, time=when, raw_message=text, message=segments)

    def signed(number: int) -> int:
        return int.from_bytes((number & 0xFFFFFFFF).to_bytes(4, "big"), "big", signed=True)

    if end is End.NAPCAT:
        local = int.from_bytes(hashlib.md5(f"{account}-{seq}".encode()).digest()[:4], "big") >> 1
        own: dict[str, Any] = {"message_id": local, "message_seq": local, "real_id": local, "real_seq": str(seq)}
    elif end is End.LLONEBOT:
        shared = signed(int.from_bytes(hashlib.md5(f"{group}-{seq}-{rand}".encode()).digest()[:4], "big"))
        own = {"message_id": shared, "message_seq": seq, "message_format": "array"}
    elif end is End.LAGRANGE:
        own = {"message_id": signed(((seq & 0xFFFF) << 16) | rand), "anonymous": None, "message_style": None}
    else:
        shared = signed(zlib.crc32(f"{group}-{seq}".encode()))
        own = {"message_id": shared, "message_seq": seq, "anonymous": None, "message": text}
    return shape | own


ODD_DATA: list[Any] = ["x", [], 5, {"text": []}, {"text": True}, {"text": 1.5}]
ENDS = [End.NAPCAT, End.LLONEBOT, End.LAGRANGE, End.GOCQ]


@pytest.mark.parametrize("seq", [1, 1001, 32_768, 65_535, 65_536, 131_077, 4_000_000_000])
@pytest.mark.parametrize("end", ENDS)
def test_every_implementation_yields_the_same_message(end: End, seq: int) -> None:
    message = read(costume(end, 90001, seq, "ping 1"), end=end)
    assert (message.group_id, message.user_id, message.bot_id) == ("700100200", "80001", "90001")
    assert (message.text, message.time_s, message.seq) == ("ping 1", 1_790_000_000, seq & 0xFFFF)
    assert message.raw_segments == [{"type": "text", "data": {"text": "ping 1"}}]
    assert message.message_id not in {"", "0"}
    assert not message.self_sent


def test_a_sequence_in_the_message_id_is_read_for_lagrange_alone() -> None:
    frame = costume(End.LAGRANGE, 90001, 5, "x")
    assert read(frame, end=End.LAGRANGE).seq == 5
    assert read(frame, end=End.UNKNOWN).seq is None


def test_a_private_message_has_no_group_and_no_shared_sequence() -> None:
    message = read(event(message_type="private", group_id=..., real_seq="9"))
    assert (message.group_id, message.seq) == ("", None)
    assert read(event(message_type="private", group_id=5)).group_id == ""


def test_the_sender_is_read_from_the_ends_own_description() -> None:
    sender = sender_of(read(event()))
    assert (sender.user_id, sender.nickname, sender.card, sender.role) == ("80001", "nick", "card", "admin")


@pytest.mark.parametrize("odd", [..., None, [], "x", {"nickname": ["a"], "card": None, "role": True}])
def test_an_odd_sender_object_loses_no_message(odd: Any) -> None:
    sender = sender_of(read(event(sender=odd)))
    assert (sender.user_id, sender.nickname, sender.card, sender.role) == ("80001", "", "", "")


def test_a_mention_is_listed_in_order_and_everyone_as_all() -> None:
    ats = [{"type": "at", "data": {"qq": who}} for who in ("90001", 90002, "all", "", 0, None, True, "90001")]
    message = read(event(message=[*ats, {"type": "text", "data": {"text": " go"}}]))
    assert message.mentions == ("90001", "90002", "all", "90001")
    assert message.text == " go"


def test_text_that_looks_like_a_code_stays_text_in_the_array_form() -> None:
    typed = "[CQ:at,qq=all] &amp;"
    message = read(event(message=[{"type": "text", "data": {"text": typed}}]))
    assert (message.text, message.mentions) == (typed, ())


def test_the_string_form_is_unescaped_and_its_codes_become_segments() -> None:
    message = read(event(message="[CQ:at,qq=90001] 看 &#91;1,2&#93;&amp;3[CQ:image,file=a.image]"))
    assert (message.text, message.mentions) == (" 看 [1,2]&3", ("90001",))
    assert [segment["type"] for segment in message.raw_segments] == ["at", "text", "image"]


def test_a_code_that_a_person_typed_stays_text_in_the_string_form() -> None:
    message = read(event(message="&#91;CQ:at,qq=all&#93;"))
    assert (message.text, message.mentions) == ("[CQ:at,qq=all]", ())


def test_a_single_segment_object_is_taken_as_a_list_of_one() -> None:
    assert read(event(message={"type": "text", "data": {"text": "hi"}})).text == "hi"


@pytest.mark.parametrize("empty", [[], ""])
def test_an_empty_message_is_a_message(empty: Any) -> None:
    message = read(event(message=empty))
    assert (message.text, message.raw_segments) == ("", [])


def test_segments_without_data_get_empty_data() -> None:
    message = read(event(message=[{"type": "dice"}, {"type": "rps", "data": None}, {"type": "text", "data": {}}]))
    assert [segment["data"] for segment in message.raw_segments] == [{}, {}, {"text": ""}]


@pytest.mark.parametrize(
    "content",
    [
        *[None, ..., 5, True, ["a"], [None], [[]], [{}], [{"type": None}], [{"type": 5, "data": {}}], [{"type": ""}]],
        *[[{"type": "text", "data": data}] for data in ODD_DATA],
    ],
)
def test_a_message_of_the_wrong_type_is_refused(content: Any) -> None:
    assert reason(event(message=content)) == Reason.WRONG_TYPE


@pytest.mark.parametrize("value", [0, "0", "", " ", None, ..., True, False, 1.5, -1, -5, "-5", "00", [], {}, "None"])
@pytest.mark.parametrize("field", ["group_id", "user_id"])
def test_an_id_that_names_nobody_is_refused(field: str, value: Any) -> None:
    assert reason(event(**{field: value})) == Reason.BAD_ID


@pytest.mark.parametrize("value", ["null", "undefined", "NaN", "a\nb", "a\x00", "x" * 65, 10**70, 1e300])
def test_an_id_that_is_no_name_is_refused(value: Any) -> None:
    assert reason(event(group_id=value)) == Reason.BAD_ID


@pytest.mark.parametrize(
    "value, expected",
    [
        (5, "5"),
        ("5", "5"),
        ("005", "5"),
        (" 5 ", "5"),
        ("群-a", "群-a"),
        (2**63, str(2**63)),
        (2**64 - 1, str(2**64 - 1)),
    ],
)
def test_an_id_becomes_one_exact_string(value: Any, expected: str) -> None:
    message = read(event(group_id=value, user_id=value))
    assert (message.group_id, message.user_id) == (expected, expected)


@pytest.mark.parametrize("field", ["group_id", "user_id", "message_id"])
def test_an_id_beyond_64_bits_survives_to_the_last_digit(field: str) -> None:
    exact = 2**64 + 12_345_678_901
    message = read(event(**{field: exact}))
    assert getattr(message, field) == str(exact)
    assert message.text == "hi"


def test_an_account_and_a_mention_beyond_64_bits_survive_too() -> None:
    exact = 2**70 + 1
    message = read(event(self_id=exact, message=[{"type": "at", "data": {"qq": exact}}]), bot_id=str(exact))
    assert (message.bot_id, message.mentions) == (str(exact), (str(exact),))


@pytest.mark.parametrize(
    "value, expected",
    [
        (77, "77"),
        (-77, "-77"),
        ("abc", "abc"),
        ("-9", "-9"),
        *[(none, "") for none in (0, -1, "0", "-1", "", None, ..., "null")],
    ],
)
def test_a_message_id_may_be_negative_and_is_empty_where_the_end_has_none(value: Any, expected: str) -> None:
    assert read(event(message_id=value)).message_id == expected


@pytest.mark.parametrize("value", [True, 1.5, [], {}, "x" * 65, "a\tb"])
def test_a_message_id_of_another_type_is_refused(value: Any) -> None:
    assert reason(event(message_id=value)) == Reason.BAD_ID


@pytest.mark.parametrize(
    "value, expected",
    [
        (1_790_000_000, 1_790_000_000),
        (1_790_000_000_412, 1_790_000_000),
        ("1790000000", 1_790_000_000),
        (1_790_000_000.9, 1_790_000_000),
        (0, 0),
        (-5, 0),
        (None, 0),
        (..., 0),
        (True, 0),
        ("soon", 0),
        ([], 0),
        (2**80, 0),
        (10**15, 0),
        (1e300, 0),
    ],
)
def test_a_time_is_read_in_seconds_or_milliseconds_and_is_zero_where_it_is_none(value: Any, expected: int) -> None:
    assert read(event(time=value)).time_s == expected


def test_an_event_of_another_account_is_refused() -> None:
    assert reason(event(self_id=90002)) == Reason.WRONG_ACCOUNT


def test_an_event_without_an_account_belongs_to_its_link() -> None:
    assert read(event(self_id=...)).bot_id == BOT
    assert read(event(self_id="90001")).bot_id == BOT


def test_the_first_event_tells_the_account_of_a_link_without_one() -> None:
    assert read(event(self_id=90007), bot_id="").bot_id == "90007"
    assert reason(event(self_id=...), bot_id="") == Reason.BAD_ID
    assert reason(event(self_id=0), bot_id="") == Reason.BAD_ID


@pytest.mark.parametrize(
    "fields, own", [({}, False), ({"post_type": "message_sent"}, True), ({"user_id": 90001}, True)]
)
def test_a_message_of_the_account_itself_is_marked(fields: dict[str, Any], *, own: bool) -> None:
    assert read(event(**fields)).self_sent is own


@pytest.mark.parametrize(
    "value, flag",
    [
        ({"flag": "AAAA|红豆", "id": 1, "name": "红豆"}, "AAAA|红豆"),
        ({"id": 1, "name": "红豆"}, "红豆"),
        ({"id": 1}, "1"),
        ({"x": []}, "anonymous"),
        (None, ""),
        ({}, ""),
        ([], ""),
        ("flag", "flag"),
    ],
)
def test_members_without_a_name_are_told_apart_by_their_flag(value: Any, flag: str) -> None:
    assert read(event(anonymous=value)).anonymous == flag


@pytest.mark.parametrize("kind", [..., None, "guild", 5, [], {"a": 1}])
def test_another_kind_of_message_is_refused_as_unknown(kind: Any) -> None:
    assert reason(event(message_type=kind)) == Reason.UNKNOWN_POST_TYPE


@pytest.mark.parametrize(
    "build",
    [
        lambda n: event(message=[{"type": "face", "data": {"id": "1"}}] * n),
        lambda n: event(message="[CQ:face,id=1]" * n),
    ],
)
def test_too_many_segments_are_refused_and_just_enough_are_taken(build: Callable[[int], dict[str, Any]]) -> None:
    limits = Limits(max_segments=50)
    assert isinstance(parse(orjson.dumps(build(50)), bot_id=BOT, limits=limits), Message)
    assert reason(build(51), limits=limits) == Reason.TOO_LARGE


def test_text_between_codes_counts_as_segments_too() -> None:
    assert reason(event(message="[CQ:face,id=1]x" * 30), limits=Limits(max_segments=50)) == Reason.TOO_LARGE

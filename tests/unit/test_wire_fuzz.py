"""Whatever an end sends: a frame or a BadFrame comes out, with exact string ids, in time linear in its size."""

from __future__ import annotations

import copy
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas.errors import BadFrame
from pallas.identity import body_digest, notice_digest
from pallas.model import ActionReply, Frame, Heartbeat, Lifecycle, Message, Notice, Reason, Request
from pallas.onebot.decode import Limits
from pallas.onebot.ends import End
from pallas.onebot.wire import parse, sender_of
from pallas.segments import from_wire

FRAMES = 100_000
LIMITS = Limits(max_bytes=64 * 1024, max_segments=200)
SAMPLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "onebot-events.json").read_text("utf-8"))
OTHERS: list[dict[str, Any]] = [
    {"post_type": "meta_event", "meta_event_type": "heartbeat", "interval": 5000, "status": {"online": True}},
    {"post_type": "meta_event", "meta_event_type": "lifecycle", "sub_type": "connect"},
    {"post_type": "notice", "notice_type": "group_upload", "group_id": 1, "user_id": 2, "file": {"name": "a"}},
    {"post_type": "notice", "notice_type": "x", "group_id": 1, "likes": [{"emoji_id": "1"}], "operator_id": 5},
    {"post_type": "request", "request_type": "group", "group_id": 1, "user_id": 2, "comment": "c", "flag": "f"},
    {"status": "ok", "retcode": 0, "data": {"message_id": 1}, "echo": "e", "stream": "stream-action"},
    {"status": "failed", "retcode": 100, "msg": "A", "wording": "b", "echo": {"seq": 1}},
]
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, 2**53, 2**63, 2**64, 2**64 + 1, -(2**63) - 1, 10**30,
    "", "0", "-1", "all", "x" * 100, "\x00", "\ud800", "\udfff\ud800", "[CQ:at,qq=all]", "[CQ:" * 50, "&#91;" * 20,
    "９", [], {}, [[]], [{}], {"type": "text"}, {"type": "at", "data": {"qq": 2**70}},
    [{"type": "text", "data": {"text": 1}}], {"data": {"data": {"data": []}}}, [None] * 300,
    {"flag": []}, {"emoji_id": {}},
]  # fmt: skip
SPLICES = [
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\", b'"', b"[" * 1500, b"[" * 80 + b"]" * 80, b"{", b"}", b"]",
    b",", b":", b"-", b"NaN", b"Infinity", b"1e999", b"18446744073709551616", b"[CQ:", b"null",
    b"\\u0000", b"\xe2\x80\xa8",
]  # fmt: skip


def originals() -> list[dict[str, Any]]:
    events = [one["event"] for one in SAMPLES["events"]]
    events += [event for trap in SAMPLES["traps"] for event in trap["events"]]
    return events + [{"self_id": 90001, **other} if "post_type" in other else other for other in OTHERS]


def containers(value: Any) -> list[Any]:
    found = [value]
    for one in found:
        found += [inner for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, dict | list)]
    return [one for one in found if one]


def changed_value(rng: random.Random, frame: bytes) -> bytes:
    """A valid frame with one or two odd values in random places."""
    body = orjson.loads(frame)
    for _ in range(rng.randint(1, 2)):
        place = rng.choice(containers(body))
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        if rng.random() < 0.15 and isinstance(place, dict):
            del place[key]
        else:
            place[key] = copy.deepcopy(rng.choice(ODD))
        if not body:
            break
    return json.dumps(body).encode()


def changed_bytes(rng: random.Random, frame: bytes) -> bytes:
    """A frame with a few bytes flipped, cut out, doubled or put in."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at:at] = rng.choice(SPLICES)
            case 1:
                del data[at : at + rng.randint(1, 20)]
            case 2:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 40)]
            case _:
                del data[at:]
    return bytes(data)


def hold_to_the_contract(frame: bytes, *, bot_id: str = "", end: End = End.LAGRANGE) -> str:
    """Parse, use the result as the worker does, and name what it was."""
    result: Frame | BadFrame
    try:
        result = parse(frame, bot_id=bot_id, limits=LIMITS, end=end)
    except BadFrame as error:
        result = error
    match result:
        case BadFrame():
            assert result.reason in set(Reason)
            assert len(str(result)) < 300
            return result.reason
        case Message():
            ids = [result.bot_id, result.user_id, *result.mentions]
            assert all(type(one) is str and one and one not in {"0", "None"} for one in ids)
            assert (
                type(result.group_id) is type(result.message_id) is type(result.text) is type(result.anonymous) is str
            )
            assert result.seq is None or 0 <= result.seq <= 0xFFFF
            assert 0 <= result.time_s <= 10**11
            result.text.encode()
            assert len(body_digest(result)) == 8
            from_wire(result.raw_segments)
            sender_of(result)
        case Notice():
            assert len(notice_digest(result)) == 8
        case Request() | Lifecycle() | Heartbeat():
            assert result.bot_id
        case ActionReply():
            assert type(result.retcode) is int
    return type(result).__name__


@pytest.mark.slow
def test_a_hundred_thousand_mutated_frames_cause_no_other_error() -> None:
    rng = random.Random(20261130)
    frames = [orjson.dumps(event) for event in originals()]
    seen: Counter[str] = Counter()
    for number in range(FRAMES):
        change = changed_value if number % 3 == 0 else changed_bytes
        seen[hold_to_the_contract(change(rng, rng.choice(frames)))] += 1
    # The mutations reach everything: each kind of frame and nearly each reason occurs.
    assert {"Message", "Notice", "Request", "Lifecycle", "Heartbeat", "ActionReply"} <= seen.keys()
    assert {Reason.NOT_JSON, Reason.NOT_UTF8, Reason.WRONG_TYPE, Reason.BAD_ID, Reason.UNKNOWN_POST_TYPE} <= seen.keys()
    assert {Reason.TOO_DEEP, Reason.TOO_LARGE} <= seen.keys()
    assert sum(seen.values()) == FRAMES


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(frame: bytes) -> None:
    hold_to_the_contract(frame, bot_id="90001")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(sorted({field for event in originals() for field in event}))
KINDS = st.sampled_from(["message", "message_sent", "notice", "request", "meta_event", "other"])


@settings(max_examples=300, deadline=None)
@given(fields=st.dictionaries(FIELDS, JSON, max_size=8), kind=KINDS, private=st.booleans())
def test_any_json_in_any_field_is_refused_or_read(fields: dict[str, Any], kind: str, *, private: bool) -> None:
    start = {"post_type": kind, "message_type": "private" if private else "group", "user_id": 1, "group_id": 2}
    hold_to_the_contract(json.dumps(start | fields).encode(), bot_id="90001")


def test_wrong_accounts_are_refused_under_every_end() -> None:
    frame = orjson.dumps(originals()[0])
    assert {hold_to_the_contract(frame, bot_id="5", end=end) for end in End} == {Reason.WRONG_ACCOUNT}


def message(content: str) -> bytes:
    return (
        b'{"self_id":1,"post_type":"message","message_type":"group","group_id":1,"user_id":2,"message":'
        + content.encode()
        + b"}"
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda n: b"[" * n,
        lambda n: b'{"a":' * (n // 5),
        lambda n: b"[" + b"[]," * (n // 3) + b"[]]",
        lambda n: message('"' + "[CQ:" * (n // 4) + '"'),
        lambda n: message('"' + "[CQ:a,b=" * 900 + "x" * n + '"'),
        lambda n: message('"' + "&#91;CQ:a&#93;&amp;" * (n // 20) + '"'),
        lambda n: message('"[CQ:image,' + "a=b," * (n // 4) + ']"'),
        lambda n: message('"' + "\\\\ud800" * (n // 7) + '"'),
        lambda n: message('"' + "\\ud800" * (n // 6) + '"'),
        lambda n: message("[" + '{"type":"text","data":{"text":"a"}},' * (n // 36) + "{}]"),
        lambda n: message('[{"type":"image","data":{"file":"' + "a" * n + '"}}]'),
        lambda n: message('[{"type":"text","data":{"text":"[' + "a" * n + ']"}}]'),
        lambda n: message('[{"type":"text","data":{"text":"' + "e\u0301" * (n // 3) + '"}}]'),
        lambda n: message('"x"').replace(b'"group_id":1', b'"group_id":' + b"9" * 300 + b',"a":[' + b"1," * n + b"1]"),
        lambda n: message('"x"').replace(b'"group_id":1', b'"group_id":' + b"9" * 30 + b',"a":"' + b"1" * n + b'"'),
        lambda n: b'{"status":"ok","retcode":0,"data":[' + b'{"a":[]},' * (n // 9) + b"{}]}",
    ],
)
def test_time_grows_with_the_size_of_a_hostile_frame_and_no_faster(build: Any) -> None:
    limits = Limits(max_segments=1000)

    def cost(size: int) -> float:
        frame, best = build(size), 1e9
        for _ in range(3):
            start = time.process_time()
            try:
                result = parse(frame, bot_id="1", limits=limits)
                if isinstance(result, Message):
                    body_digest(result)
            except BadFrame:
                pass
            best = min(best, time.process_time() - start)
        return best

    # 32 times the size: linear code takes about 32 times as long, quadratic code a thousand times.
    assert cost(640_000) < 300 * max(cost(20_000), 0.0002)

"""Each simulated end speaks as the real one does: shapes, ids, escapes, retcodes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pallas.simulate.answers import Answerer, plain_text
from pallas.simulate.ends import COSTUMES, cq_string
from pallas.simulate.options import Options
from pallas.simulate.world import Account, Group, Impl, Member, Physical, Piece, Said, World

MD5 = "9F86D081884C7D659A2FEAA0C55AD015"
NT_URL = "https://multimedia.example.invalid/download?appid=1407&fileid=EhQ9F86D081884C7D659A2FEAA0&rkey=R"
OLD_URL = f"https://gchat.example.invalid/gchatpic_new/0/0-0-{MD5}/0?term=2"
TEXT = [{"type": "text", "data": {"text": "签到"}}]
MIXED = {"type": "text", "data": {"text": " 看这个 [1,2]&3"}}
MIXED_RAW = " 看这个 &#91;1,2&#93;&amp;3"
ANN = Member(80001, "nick-a", "card-a", "member")
BEN = Member(80002, "nick-b", "", "admin")
PLACE = Group(700100200, "invented group", (0,), (ANN, BEN), 131077)
PLAIN = Physical(Said(PLACE, ANN, (Piece("text", "签到"),), "签到", False), 0, 131077, 439041101, False, ())
RICH_PIECES = (Piece("at", "90001"), Piece("text", " 看这个 [1,2]&3"), Piece("image", MD5))
RICH = Physical(Said(PLACE, BEN, RICH_PIECES, "看这个 [1,2]&3", False), 0, 131079, 1011703407, False, ())


def account(impl: Impl, *, self_id: int = 90001, string: bool = False, sequenced: bool = True) -> Account:
    return Account(0, self_id, impl, "ws://127.0.0.1:1/", string, sequenced, split=False, renew_at_s=None)


def raw_nt(at: str, image: str) -> str:
    url = NT_URL.replace("&", "&amp;")
    return f"[CQ:at,{at}]{MIXED_RAW}[CQ:image,file={image.replace('URL', url)}]"


def full_sender(member: Member, level: str) -> dict[str, Any]:
    return {
        "user_id": member.user_id,
        "nickname": member.nickname,
        "card": member.card,
        "sex": "unknown",
        "age": 0,
        "area": "",
        "level": level,
        "role": member.role,
        "title": "",
    }


def short_sender(member: Member) -> dict[str, Any]:
    names = {"nickname": member.nickname, "card": member.card, "role": member.role}
    return {"user_id": member.user_id, **names}


def nt_extra() -> dict[str, Any]:
    return {"group_name": "invented group", "font": 14, "message_format": "array"}


RICH_NAPCAT = [
    {"type": "at", "data": {"qq": "90001"}},
    MIXED,
    {
        "type": "image",
        "data": {"summary": "", "file": f"{MD5}.jpg", "sub_type": 0, "url": NT_URL, "file_size": "48213"},
    },
]
RICH_LLONEBOT = [
    {"type": "at", "data": {"qq": "90001", "name": "name-90001"}},
    MIXED,
    {"type": "image", "data": {"file": f"{MD5}.jpg", "subType": 0, "url": NT_URL, "file_size": "48213"}},
]
RICH_LAGRANGE = [
    {"type": "at", "data": {"qq": "90001", "name": "@name-90001"}},
    MIXED,
    {
        "type": "image",
        "data": {"file": NT_URL, "filename": f"{MD5}.jpg", "url": NT_URL, "summary": "[图片]", "subType": 0},
    },
]
RICH_GOCQ = f"[CQ:at,qq=90001]{MIXED_RAW}[CQ:image,file={MD5.lower()}.image,subType=0,url={OLD_URL}]"

REPORTS = [
    (
        Impl.NAPCAT,
        PLAIN,
        {
            **nt_extra(),
            "real_seq": "131077",
            "raw_message": "签到",
            "message": TEXT,
            "sender": short_sender(ANN),
        },
    ),
    (
        Impl.NAPCAT,
        RICH,
        {
            **nt_extra(),
            "real_seq": "131079",
            "raw_message": raw_nt("qq=90001", f"{MD5}.jpg,sub_type=0,url=URL,file_size=48213"),
            "message": RICH_NAPCAT,
            "sender": short_sender(BEN),
        },
    ),
    (
        Impl.LLONEBOT,
        PLAIN,
        {
            **nt_extra(),
            "message_id": 15207244,
            "message_seq": 131077,
            "raw_message": "签到",
            "message": TEXT,
            "sender": {**short_sender(ANN), "title": ""},
        },
    ),
    (
        Impl.LLONEBOT,
        RICH,
        {
            **nt_extra(),
            "message_id": 472889082,
            "message_seq": 131079,
            "raw_message": raw_nt("qq=90001,name=name-90001", f"{MD5}.jpg,subType=0,url=URL,file_size=48213"),
            "message": RICH_LLONEBOT,
            "sender": {**short_sender(BEN), "title": ""},
        },
    ),
    (
        Impl.LAGRANGE,
        PLAIN,
        {
            "message_id": 343117,
            "anonymous": None,
            "font": 0,
            "message_style": None,
            "raw_message": "签到",
            "message": TEXT,
            "sender": full_sender(ANN, "12"),
        },
    ),
    (
        Impl.LAGRANGE,
        RICH,
        {
            "message_id": 482927,
            "anonymous": None,
            "font": 0,
            "message_style": None,
            "raw_message": raw_nt("qq=90001,name=@name-90001", "URL"),
            "message": RICH_LAGRANGE,
            "sender": full_sender(BEN, "12"),
        },
    ),
    (
        Impl.GOCQ,
        PLAIN,
        {
            "message_id": 1710664403,
            "message_seq": 131077,
            "anonymous": None,
            "font": 0,
            "raw_message": "签到",
            "message": "签到",
            "sender": full_sender(ANN, ""),
        },
    ),
    (
        Impl.GOCQ,
        RICH,
        {
            "message_id": -2108782636,
            "message_seq": 131079,
            "anonymous": None,
            "font": 0,
            "raw_message": RICH_GOCQ,
            "message": RICH_GOCQ,
            "sender": full_sender(BEN, ""),
        },
    ),
]


@pytest.mark.parametrize("impl, message, expected", REPORTS)
def test_an_end_reports_a_message_in_its_own_shape(impl: Impl, message: Physical, expected: dict[str, Any]) -> None:
    time_s = 1790000000 if message is PLAIN else 1790000003
    event = COSTUMES[impl].report(account(impl, string=impl is Impl.GOCQ), message, time_s)
    event = json.loads(re.sub(r"rkey=[0-9a-f]{20}", "rkey=R", json.dumps(event)))
    if impl is Impl.NAPCAT:
        local = event.pop("message_id")
        assert 0 <= local < 1 << 31
        assert event.pop("message_seq") == event.pop("real_id") == local
    common = {
        "self_id": 90001,
        "post_type": "message",
        "message_type": "group",
        "sub_type": "normal",
        "time": time_s,
        "group_id": 700100200,
        "user_id": message.said.sender.user_id,
    }
    assert event == {**common, **expected}


def test_ids_of_napcat_differ_by_account_and_those_of_the_others_do_not() -> None:
    for impl, costume in COSTUMES.items():
        ids = {costume.report(account(impl, self_id=n), PLAIN, 1790000000)["message_id"] for n in (90001, 90002)}
        assert len(ids) == (2 if impl is Impl.NAPCAT else 1)


def test_ends_too_old_for_a_sequence_report_none() -> None:
    # No Lagrange is so old.
    for impl in set(COSTUMES) - {Impl.LAGRANGE}:
        event = COSTUMES[impl].report(account(impl, sequenced=False), PLAIN, 1790000000)
        assert "real_seq" not in event
        assert event.get("message_seq", event["message_id"]) == event["message_id"]
        assert event["message_id"] >> 16 != 131077 & 0xFFFF


def test_the_string_form_says_so_and_equals_the_raw_message() -> None:
    event = COSTUMES[Impl.LLONEBOT].report(account(Impl.LLONEBOT, string=True), RICH, 1790000003)
    assert event["message"] == event["raw_message"]
    assert event["message_format"] == "string"


def test_lagrange_tells_at_all_as_text_and_gocq_a_sticker() -> None:
    assert COSTUMES[Impl.LAGRANGE].segment(account(Impl.LAGRANGE), Piece("at_all"), 0)["data"] == {"text": "@全体成员"}
    assert COSTUMES[Impl.GOCQ].segment(account(Impl.GOCQ), Piece("sticker", "AB"), 0)["type"] == "text"
    assert COSTUMES[Impl.NAPCAT].segment(account(Impl.NAPCAT), Piece("sticker", "AB"), 0)["type"] == "image"
    assert COSTUMES[Impl.LLONEBOT].segment(account(Impl.LLONEBOT), Piece("sticker", "AB"), 0)["type"] == "mface"


@pytest.mark.parametrize(
    "impl, agent, role_header, with_token, without",
    [
        (Impl.NAPCAT, "OneBot/11", "x-client-role", "Bearer t", "Bearer "),
        (Impl.LLONEBOT, "LLOneBot/7.0.2", "x-client-role", "Bearer t", "Bearer "),
        (Impl.LAGRANGE, "Lagrange.OneBot", "X-Client-Role", "Bearer t", "Bearer "),
        (Impl.GOCQ, "CQHttp/4.15.0", "X-Client-Role", "Token t", None),
    ],
)
def test_handshakes(impl: Impl, agent: str, role_header: str, with_token: str, without: str | None) -> None:
    costume = COSTUMES[impl]
    assert costume.user_agent == agent
    expected = {role_header: "Universal", "X-Self-ID": "90001"}
    assert costume.headers(account(impl), "t") == {**expected, "Authorization": with_token}
    assert costume.headers(account(impl), "") == expected | ({} if without is None else {"Authorization": without})


def test_lagrange_writes_its_api_role_in_its_own_way() -> None:
    assert COSTUMES[Impl.LAGRANGE].headers(account(Impl.LAGRANGE), "", "Api")["X-Client-Role"] == "Api"
    assert COSTUMES[Impl.GOCQ].headers(account(Impl.GOCQ), "", "Api")["X-Client-Role"] == "API"


@pytest.mark.parametrize(
    "impl, interval_s", [(Impl.NAPCAT, 30), (Impl.LLONEBOT, 30), (Impl.LAGRANGE, 5), (Impl.GOCQ, 5)]
)
def test_heartbeats_name_their_interval_in_milliseconds(impl: Impl, interval_s: float) -> None:
    costume = COSTUMES[impl]
    assert costume.heartbeat_s == interval_s
    beat = costume.heartbeat(account(impl), 1790000000, costume.heartbeat_s)
    assert beat["interval"] == interval_s * 1000
    assert (beat["status"]["online"], beat["status"]["good"]) == (True, True)
    assert costume.lifecycle(account(impl), 1790000000)["sub_type"] == "connect"


def test_typed_codes_are_escaped_and_come_back_as_typed() -> None:
    typed = "[CQ:at,qq=1], &amp; &#91; 好"
    code = cq_string({"type": "text", "data": {"text": typed}})
    assert "[" not in code
    assert plain_text(code) == typed
    assert plain_text(f"[CQ:reply,id=1]{code}[CQ:at,qq=2]") == typed
    assert plain_text(typed, auto_escape=True) == typed
    assert plain_text([{"type": "reply", "data": {"id": "1"}}, {"type": "text", "data": {"text": typed}}]) == typed
    assert plain_text({"type": "text", "data": {"text": typed}}) == typed
    assert plain_text(None) == plain_text([[["x"]]]) == plain_text({"type": "text"}) == ""
    assert cq_string({"type": "at", "data": {"qq": "1", "name": "a,b]"}}) == "[CQ:at,qq=1,name=a&#44;b&#93;]"


WORLD = World(Options(urls=("ws://127.0.0.1:1/",), accounts=4, groups=3))


def answerer(impl: Impl) -> Answerer:
    return Answerer(next(a for a in WORLD.accounts if a.impl is impl), WORLD)


def home(impl: Impl) -> Group:
    index = list(Impl).index(impl)
    return next(group for group in WORLD.groups if index in group.accounts)


def asked(impl: Impl, action: str, params: object = None, **more: object) -> dict[str, Any]:
    reply = answerer(impl).answer(json.dumps({"action": action, "params": params, **more}), 1790000000).reply
    assert reply is not None
    return reply


@pytest.mark.parametrize("impl", list(Impl))
@pytest.mark.parametrize("echo", ["7", 7, 1 << 70, {"seq": 1}, [1], None, "", 1.5, False])
def test_an_echo_of_any_type_comes_back_unchanged(impl: Impl, echo: object) -> None:
    reply = asked(impl, "get_status", echo=echo)
    assert reply["echo"] == echo
    assert type(reply["echo"]) is type(echo)
    assert (reply["status"], reply["retcode"]) == ("ok", 0)


def test_without_an_echo_each_end_answers_in_its_own_way() -> None:
    assert asked(Impl.NAPCAT, "get_status")["echo"] == ""
    assert asked(Impl.LAGRANGE, "get_status")["echo"] is None
    assert "echo" not in asked(Impl.LLONEBOT, "get_status")
    assert "echo" not in asked(Impl.GOCQ, "get_status")


@pytest.mark.parametrize(
    "impl, unknown, missing, refused",
    [
        (Impl.NAPCAT, 1404, 1400, 1200),
        (Impl.LLONEBOT, 1404, 1400, 1200),
        (Impl.LAGRANGE, 404, 200, 16),
        (Impl.GOCQ, 404, 100, 100),
    ],
)
def test_retcodes(impl: Impl, unknown: int, missing: int, refused: int) -> None:
    group_id = home(impl).group_id
    assert asked(impl, "no_such_action")["retcode"] == unknown
    assert asked(impl, "send_group_msg", {"group_id": group_id})["retcode"] == missing
    assert asked(impl, "send_group_msg", {"message": "x"})["retcode"] == missing
    reply = asked(impl, "send_group_msg", {"group_id": 1, "message": "x"}, echo=1)
    assert (reply["retcode"], reply["status"], reply["echo"]) == (refused, "failed", 1)
    assert (
        answerer(impl)
        .answer(json.dumps({"action": "send_group_msg", "params": {"group_id": 1, "message": "x"}}), 0)
        .refused
    )


def test_suffixes_are_known_to_those_ends_that_know_them() -> None:
    assert asked(Impl.NAPCAT, "get_status_rate_limited")["retcode"] == 0
    assert asked(Impl.GOCQ, "get_status_async")["retcode"] == 0
    assert asked(Impl.GOCQ, "get_status_rate_limited")["retcode"] == 404
    assert asked(Impl.LAGRANGE, "get_status_async")["retcode"] == 404


@pytest.mark.parametrize("frame", ["{", "[]", "1", '"x"', "", b"\xff", "[" * 100_000])
def test_frames_that_are_no_actions_are_answered_or_not_as_the_end_does(frame: str | bytes) -> None:
    codes = {impl: (answerer(impl).answer(frame, 0).reply or {}).get("retcode") for impl in Impl}
    assert codes == {Impl.NAPCAT: 1400, Impl.LLONEBOT: 1400, Impl.LAGRANGE: None, Impl.GOCQ: 404}


@pytest.mark.parametrize("impl", list(Impl))
def test_sends_are_accepted_with_an_id_and_their_text(impl: Impl) -> None:
    group_id = home(impl).group_id
    ends = answerer(impl)
    ids = set()
    for action, params in (
        ("send_group_msg", {"group_id": group_id, "message": [{"type": "text", "data": {"text": "pong a&[1]"}}]}),
        ("send_group_msg", {"group_id": str(group_id), "message": "pong a&amp;&#91;1&#93;"}),
        ("send_msg", {"message_type": "group", "group_id": group_id, "message": "pong a&[1]", "auto_escape": True}),
    ):
        answer = ends.answer(json.dumps({"action": action, "params": params, "echo": 1}), 1790000000)
        assert answer.sent is not None
        assert (answer.sent.group_id, answer.sent.text) == (group_id, "pong a&[1]")
        assert answer.reply is not None
        ids.add(answer.reply["data"]["message_id"])
    assert len(ids) == 3


def test_a_private_send_belongs_to_no_group() -> None:
    for action in ("send_private_msg", "send_msg"):
        answer = answerer(Impl.NAPCAT).answer(
            json.dumps({"action": action, "params": {"user_id": 5, "message": "x"}}), 0
        )
        assert answer.sent is not None
        assert answer.sent.group_id == 0


@pytest.mark.parametrize(
    "impl, name, version",
    [
        (Impl.NAPCAT, "NapCat.Onebot", "4.18.19"),
        (Impl.LLONEBOT, "LLOneBot", "7.0.2"),
        (Impl.LAGRANGE, "Lagrange.OneBot", "0.0.3"),
        (Impl.GOCQ, "go-cqhttp", "v1.2.0"),
    ],
)
def test_queries_tell_who_and_where_the_account_is(impl: Impl, name: str, version: str) -> None:
    me = next(a for a in WORLD.accounts if a.impl is impl)
    data = asked(impl, "get_version_info")["data"]
    assert (data["app_name"], data["app_version"], data["protocol_version"]) == (name, version, "v11")
    assert asked(impl, "get_login_info")["data"]["user_id"] == me.self_id
    groups = asked(impl, "get_group_list")["data"]
    assert {group["group_id"] for group in groups} == {g.group_id for g in WORLD.groups if me.index in g.accounts}
    group = home(impl)
    who = {"group_id": group.group_id, "user_id": group.members[0].user_id}
    assert asked(impl, "get_group_member_info", who)["data"]["role"] == "owner"
    assert asked(impl, "get_group_member_info", {**who, "user_id": me.self_id})["data"]["user_id"] == me.self_id
    assert asked(impl, "get_group_member_info", {**who, "user_id": 1})["status"] == "failed"
    assert asked(impl, "get_group_info", {"group_id": 1})["status"] == "failed"

"""How each protocol end answers the actions a worker calls.

Pure: a request and the account in, the reply frame and the message that would have been sent out. Retcodes,
missing fields and the treatment of `echo` are each end's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pallas.simulate.ends import COSTUMES, Json
from pallas.simulate.world import Account, Group, Impl, World

_CQ_CODE = re.compile(r"\[CQ:[^\]]*\]")
_VERSIONS: Mapping[Impl, Json] = {
    Impl.NAPCAT: {"app_name": "NapCat.Onebot", "protocol_version": "v11", "app_version": "4.18.19"},
    Impl.LLONEBOT: {"app_name": "LLOneBot", "protocol_version": "v11", "app_version": "7.0.2"},
    Impl.LAGRANGE: {
        "app_name": "Lagrange.OneBot",
        "app_version": "0.0.3",
        "protocol_version": "v11",
        "nt_protocol": "Linux | 3.2.15-30366",
    },
    Impl.GOCQ: {
        "app_name": "go-cqhttp",
        "app_version": "v1.2.0",
        "app_full_name": "go-cqhttp-v1.2.0_linux_amd64-go1.20.7",
        "coolq_edition": "pro",
        "coolq_directory": "",
        "go-cqhttp": True,
        "plugin_version": "4.15.0",
        "plugin_build_number": 99,
        "plugin_build_configuration": "release",
        "runtime_version": "go1.20.7",
        "runtime_os": "linux",
        "version": "v1.2.0",
        "protocol_name": 6,
        "protocol_version": "v11",
    },
}
# Retcodes: no such action, parameters missing, the send was refused.
_CODES: Mapping[Impl, tuple[int, int, int]] = {
    Impl.NAPCAT: (1404, 1400, 1200),
    Impl.LLONEBOT: (1404, 1400, 1200),
    Impl.LAGRANGE: (404, 200, 16),
    Impl.GOCQ: (404, 100, 100),
}
_NO_ECHO = object()


@dataclass(slots=True, frozen=True)
class Sent:
    """A message the end accepted: to a group, or to a person where `group_id` is 0."""

    group_id: int
    text: str


@dataclass(slots=True, frozen=True)
class Answer:
    """What goes back on the wire, if anything, and what was sent or refused."""

    reply: Json | None
    sent: Sent | None = None
    refused: bool = False


class _Failure(Exception):
    """An action that this end does not do; `kind` is a place in the end's retcodes."""

    def __init__(self, kind: int, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Answerer:
    """Answers for one account out of what it can see of the world."""

    def __init__(self, account: Account, world: World) -> None:
        self._account = account
        self._fleet = world.accounts
        self._groups: dict[int, Group] = {g.group_id: g for g in world.groups if account.index in g.accounts}
        self._sent = 0

    def answer(self, frame: str | bytes, time_s: int) -> Answer:
        """The reply to a frame as this end gives it; anything may be in the frame."""
        impl = self._account.impl
        try:
            request = json.loads(frame)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            # Lagrange keeps silent, go-cqhttp looks for an action of no name.
            code = _CODES[impl][0] if impl is Impl.GOCQ else 1400
            return Answer(None if impl is Impl.LAGRANGE else self._failed(code, "cannot be read", _NO_ECHO))
        echo = request.get("echo", _NO_ECHO)
        params = request.get("params")
        sent: Sent | None = None
        name = self._plain_name(str(request.get("action", "")))
        try:
            if name in {"send_group_msg", "send_msg", "send_private_msg"}:
                sent, data = self._send(name, params if isinstance(params, dict) else {}, time_s)
            else:
                data = self._look_up(name, params if isinstance(params, dict) else {})
        except _Failure as failure:
            reply = self._failed(_CODES[impl][failure.kind], str(failure), echo)
            return Answer(reply, refused=name.startswith("send_"))
        return Answer(self._echoed({"status": "ok", "retcode": 0, "data": data, **_words(impl, "")}, echo), sent)

    def refusal(self, frame: str | bytes) -> Json:
        """How this end refuses a send that it has read."""
        echo = json.loads(frame).get("echo", _NO_ECHO)
        return self._failed(_CODES[self._account.impl][2], "the send was refused", echo)

    def _plain_name(self, name: str) -> str:
        if self._account.impl is not Impl.LAGRANGE:
            name = name.removesuffix("_async")
        if self._account.impl in {Impl.NAPCAT, Impl.LLONEBOT}:
            name = name.removesuffix("_rate_limited")
        return name

    def _send(self, name: str, params: Json, time_s: int) -> tuple[Sent, Json]:
        content = params.get("message")
        group_id = _whole(params.get("group_id"))
        if name == "send_private_msg" or (name == "send_msg" and params.get("message_type") == "private"):
            group_id = 0
        elif not group_id and not (name == "send_msg" and _whole(params.get("user_id"))):
            raise _Failure(1, "group_id is missing")
        if content is None or content in ("", []):
            raise _Failure(1, "message is missing")
        if group_id and group_id not in self._groups:
            raise _Failure(2, f"account {self._account.self_id} is not in group {group_id}")
        self._sent += 1
        # Its own sequence is unimportant here: nobody reports it.
        costume = COSTUMES[self._account.impl]
        mid = costume.message_id(self._account, group_id, self._sent, self._account.self_id + self._sent, time_s)
        return Sent(group_id, plain_text(content, auto_escape=params.get("auto_escape") is True)), {"message_id": mid}

    def _look_up(self, name: str, params: Json) -> Any:
        account = self._account
        match name:
            case "get_login_info":
                return {"user_id": account.self_id, "nickname": _name(account)}
            case "get_version_info":
                return _VERSIONS[account.impl]
            case "get_status":
                return COSTUMES[account.impl].status()
            case "get_friend_list":
                return []
            case "get_group_list":
                return [_described(group) for group in self._groups.values()]
            case "get_group_info":
                return _described(self._group(params))
            case "get_group_member_list":
                return self._members(self._group(params))
            case "get_group_member_info":
                user_id = _whole(params.get("user_id"))
                for member in self._members(self._group(params)):
                    if member["user_id"] == user_id:
                        return member
                raise _Failure(2, f"user {user_id} is not in the group")
            case _:
                raise _Failure(0, "API_NOT_FOUND" if account.impl is Impl.GOCQ else f"unknown action {name[:64]}")

    def _group(self, params: Json) -> Group:
        group = self._groups.get(_whole(params.get("group_id")))
        if group is None:
            raise _Failure(2, f"account {self._account.self_id} is not in group {params.get('group_id')!s:.32}")
        return group

    def _members(self, group: Group) -> list[Json]:
        people = [(m.user_id, m.nickname, m.card, m.role) for m in group.members]
        for account in (self._fleet[index] for index in group.accounts):
            role = "admin" if (account.index + group.group_id) % 4 == 0 else "member"
            people.append((account.self_id, _name(account), "", role))
        return [
            {"group_id": group.group_id, "user_id": user_id, "nickname": nickname, "card": card, "role": role}
            for user_id, nickname, card, role in people
        ]

    def _failed(self, retcode: int, text: str, echo: object) -> Json:
        impl = self._account.impl
        return self._echoed({"status": "failed", "retcode": retcode, "data": None, **_words(impl, text)}, echo)

    def _echoed(self, reply: Json, echo: object) -> Json:
        impl = self._account.impl
        if impl is Impl.NAPCAT:
            reply["stream"] = "normal-action"
        if echo is not _NO_ECHO:
            return {**reply, "echo": echo}
        if impl is Impl.NAPCAT:
            return {**reply, "echo": ""}
        return {**reply, "echo": None} if impl is Impl.LAGRANGE else reply


def plain_text(content: object, *, auto_escape: bool = False) -> str:
    """The typed text of an action's `message`: a string with CQ codes, a segment, or a list of segments.

    With `auto_escape` a string is text as it stands.
    """
    if isinstance(content, str):
        if auto_escape:
            return content
        bare = _CQ_CODE.sub("", content)
        return bare.replace("&#91;", "[").replace("&#93;", "]").replace("&#44;", ",").replace("&amp;", "&")
    if isinstance(content, dict):
        data = content.get("data")
        return str(data.get("text", "")) if content.get("type") == "text" and isinstance(data, dict) else ""
    if isinstance(content, list):
        return "".join(plain_text(part, auto_escape=True) for part in content if not isinstance(part, list))
    return ""


def _name(account: Account) -> str:
    return f"simulated {account.impl} {account.index + 1}"


def _words(impl: Impl, text: str) -> Json:
    if impl is Impl.LAGRANGE:
        return {}
    if impl is Impl.GOCQ:
        return {"message": "", "msg": text, "wording": text} if text else {"message": ""}
    return {"message": text, "wording": text}


def _described(group: Group) -> Json:
    count = len(group.members) + len(group.accounts)
    return {"group_id": group.group_id, "group_name": group.name, "member_count": count, "max_member_count": 200}


def _whole(value: object) -> int:
    """An id as an action may give it, a number or its digits; 0 for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0

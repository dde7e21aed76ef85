"""How each protocol end looks on the wire: its handshake, its events, its ids.

Pure. Four costumes (NapCat, LLOneBot/LLBot, Lagrange, go-cqhttp) tell one physical message in four ways; what
they have in common is only what the server gave: group, sender, time and, in different fields, the sequence.
Written from the ends' behaviour and not with the product's parser, so that a misreading there shows.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

from pallas.simulate.world import Account, Impl, Member, Physical, Piece

Json = dict[str, Any]

_HOST = "example.invalid"
_STICKER = "[simulated sticker]"


class Costume:
    """What one end shows of an account; the subclasses are the four ends."""

    impl: Impl
    user_agent: str
    role_header = "X-Client-Role"
    api_role = "API"
    open_timeout_s = 10.0
    reconnect_s: float
    heartbeat_s: float
    hold_s = 0.0
    """How long events raised while the link is down are kept for the next one."""
    notices_close = True
    """False: a closed link is noticed only when the next frame cannot be written."""

    def headers(self, account: Account, token: str, role: str = "Universal") -> dict[str, str]:
        """Handshake headers without the User-Agent; `role` is Universal, Api or Event."""
        shown = self.api_role if role == "Api" else role
        return {self.role_header: shown, "X-Self-ID": str(account.self_id), **self._authorization(token)}

    def _authorization(self, token: str) -> dict[str, str]:
        # Sent with nothing behind it where no token is set: three of the four do so.
        return {"Authorization": f"Bearer {token}"}

    def lifecycle(self, account: Account, time_s: int) -> Json:
        """The first frame on a new link."""
        return {
            "time": time_s,
            "self_id": account.self_id,
            "post_type": "meta_event",
            "meta_event_type": "lifecycle",
            "sub_type": "connect",
        }

    def heartbeat(self, account: Account, time_s: int, interval_s: float) -> Json:
        """The periodic sign of life, with what this end claims about itself."""
        return {
            "time": time_s,
            "self_id": account.self_id,
            "post_type": "meta_event",
            "meta_event_type": "heartbeat",
            "status": self.status(),
            "interval": round(interval_s * 1000),
        }

    def status(self) -> Json:
        """`status` of a heartbeat and data of `get_status`."""
        return {"online": True, "good": True}

    def report(self, account: Account, message: Physical, time_s: int) -> Json:
        """The event by which `account` reports `message`, which was sent at `time_s`."""
        said = message.said
        segments = [self.segment(account, piece, time_s) for piece in said.pieces]
        raw = "".join(self._cq(segment) for segment in segments)
        return {
            "self_id": account.self_id,
            "post_type": "message",
            "message_type": "group",
            "sub_type": "normal",
            "time": time_s,
            "group_id": said.group.group_id,
            "user_id": said.sender.user_id,
            **self._ids(account, said.group.group_id, message.seq, message.random, time_s),
            **self._extra(account, message),
            "raw_message": raw,
            "message": raw if account.string_form else segments,
            "sender": self._sender(said.sender),
        }

    def message_id(self, account: Account, group_id: int, seq: int, random: int, time_s: int) -> int:
        """This end's id for a message, as events and answers to `send_group_msg` carry it."""
        raise NotImplementedError

    def _ids(self, account: Account, group_id: int, seq: int, random: int, time_s: int) -> Json:
        mid = self.message_id(account, group_id, seq, random, time_s)
        return {"message_id": mid, "message_seq": seq if account.sequenced else mid}

    def _extra(self, account: Account, message: Physical) -> Json:
        del account, message
        return {"anonymous": None, "font": 0}

    def _sender(self, member: Member) -> Json:
        return {
            "user_id": member.user_id,
            "nickname": member.nickname,
            "card": member.card,
            "sex": "unknown",
            "age": 0,
            "area": "",
            "level": "",
            "role": member.role,
            "title": "",
        }

    def segment(self, account: Account, piece: Piece, time_s: int) -> Json:
        """One part of a message in this end's array form."""
        match piece.kind:
            case "text":
                return _segment("text", text=piece.value)
            case "at":
                return self._at(piece.value)
            case "at_all":
                return _segment("at", qq="all")
            case "face":
                return _segment("face", id=piece.value)
            case "image":
                return self._image(account, piece.value, time_s)
            case _:
                return self._sticker(piece.value)

    def _at(self, user_id: str) -> Json:
        return _segment("at", qq=user_id)

    def _image(self, account: Account, md5: str, time_s: int) -> Json:
        raise NotImplementedError

    def _sticker(self, emoji_id: str) -> Json:
        return _segment(
            "mface", summary=_STICKER, url=f"https://gxh.{_HOST}/{emoji_id.lower()}", emoji_id=emoji_id.lower()
        )

    def _cq(self, segment: Json) -> str:
        return cq_string(segment)


class NapCat(Costume):
    """Local message ids; the sequence is a string in `real_seq`."""

    impl = Impl.NAPCAT
    user_agent = "OneBot/11"
    role_header = "x-client-role"
    open_timeout_s = 2.0
    reconnect_s = 5.0
    heartbeat_s = 30.0

    def message_id(self, account: Account, group_id: int, seq: int, random: int, time_s: int) -> int:
        local = f"{account.self_id}-{group_id}-{seq}-{random}-{time_s}"
        return int.from_bytes(_md5(local)[:4], "big") & 0x7FFFFFFF

    def _ids(self, account: Account, group_id: int, seq: int, random: int, time_s: int) -> Json:
        mid = self.message_id(account, group_id, seq, random, time_s)
        real = {"real_seq": str(seq)} if account.sequenced else {}
        return {"message_id": mid, "message_seq": mid, "real_id": mid, **real}

    def _extra(self, account: Account, message: Physical) -> Json:
        return _nt_extra(account, message)

    def _sender(self, member: Member) -> Json:
        return {"user_id": member.user_id, "nickname": member.nickname, "card": member.card, "role": member.role}

    def _image(self, account: Account, md5: str, time_s: int) -> Json:
        url = _nt_url(account, md5, time_s)
        return _segment("image", summary="", file=f"{md5}.jpg", sub_type=0, url=url, file_size="48213")

    def _sticker(self, emoji_id: str) -> Json:
        name = emoji_id.lower()
        url = f"https://gxh.{_HOST}/{name}"
        return _segment("image", summary=_STICKER, file=f"{name}.gif", url=url, key="0", emoji_id=name)


class LLOneBot(Costume):
    """Ids shared by every account of the same version; the sequence is `message_seq`."""

    impl = Impl.LLONEBOT
    user_agent = "LLOneBot/7.0.2"
    role_header = "x-client-role"
    open_timeout_s = 2.0
    reconnect_s = 3.0
    heartbeat_s = 30.0

    def message_id(self, account: Account, group_id: int, seq: int, random: int, time_s: int) -> int:
        del account
        return int.from_bytes(_md5(f"2-{group_id}-{seq}-{random}-{time_s}")[:4], "big", signed=True)

    def _extra(self, account: Account, message: Physical) -> Json:
        return _nt_extra(account, message)

    def _sender(self, member: Member) -> Json:
        return {
            "user_id": member.user_id,
            "nickname": member.nickname,
            "card": member.card,
            "role": member.role,
            "title": "",
        }

    def _at(self, user_id: str) -> Json:
        return _segment("at", qq=user_id, name=f"name-{user_id}")

    def _image(self, account: Account, md5: str, time_s: int) -> Json:
        url = _nt_url(account, md5, time_s)
        return _segment("image", file=f"{md5}.jpg", subType=0, url=url, file_size="48213")


class Lagrange(Costume):
    """The low 16 bits of the sequence are the upper half of `message_id`, which does not hold the group."""

    impl = Impl.LAGRANGE
    user_agent = "Lagrange.OneBot"
    api_role = "Api"
    reconnect_s = 5.0
    heartbeat_s = 5.0
    hold_s = 5.0
    notices_close = False

    def status(self) -> Json:
        # Constant, whatever the account's real state.
        return {"app_initialized": True, "app_enabled": True, "app_good": True, "online": True, "good": True}

    def message_id(self, account: Account, group_id: int, seq: int, random: int, time_s: int) -> int:
        del account, group_id, time_s
        return _int32((seq & 0xFFFF) << 16 | random & 0xFFFF)

    def _ids(self, account: Account, group_id: int, seq: int, random: int, time_s: int) -> Json:
        return {"message_id": self.message_id(account, group_id, seq, random, time_s)}

    def _extra(self, account: Account, message: Physical) -> Json:
        return {**super()._extra(account, message), "message_style": None}

    def _sender(self, member: Member) -> Json:
        return {**super()._sender(member), "level": "12"}

    def segment(self, account: Account, piece: Piece, time_s: int) -> Json:
        if piece.kind == "at_all":
            return _segment("text", text="@全体成员")
        return super().segment(account, piece, time_s)

    def _at(self, user_id: str) -> Json:
        return _segment("at", qq=user_id, name=f"@name-{user_id}")

    def _image(self, account: Account, md5: str, time_s: int) -> Json:
        url = _nt_url(account, md5, time_s)
        return _segment("image", file=url, filename=f"{md5}.jpg", url=url, summary="[图片]", subType=0)

    def _cq(self, segment: Json) -> str:
        if segment["type"] == "image":
            return cq_string(_segment("image", file=segment["data"]["file"]))
        return cq_string(segment)


class GoCqhttp(Costume):
    """CQ strings by default; blocked events come in a burst after a reconnect."""

    impl = Impl.GOCQ
    user_agent = "CQHttp/4.15.0"
    reconnect_s = 3.0
    heartbeat_s = 5.0
    hold_s = float("inf")
    notices_close = False

    def _authorization(self, token: str) -> dict[str, str]:
        return {"Authorization": f"Token {token}"} if token else {}

    def status(self) -> Json:
        return {
            "app_initialized": True,
            "app_enabled": True,
            "plugins_good": None,
            "app_good": True,
            "online": True,
            "good": True,
            "stat": {
                "packet_received": 1,
                "packet_sent": 1,
                "packet_lost": 0,
                "message_received": 1,
                "message_sent": 1,
            },
        }

    def message_id(self, account: Account, group_id: int, seq: int, random: int, time_s: int) -> int:
        del account, random, time_s
        return _int32(zlib.crc32(f"{group_id}-{seq}".encode()))

    def _image(self, account: Account, md5: str, time_s: int) -> Json:
        del account, time_s
        url = f"https://gchat.{_HOST}/gchatpic_new/0/0-0-{md5}/0?term=2"
        return _segment("image", file=f"{md5.lower()}.image", subType="0", url=url)

    def _sticker(self, emoji_id: str) -> Json:
        del emoji_id
        return _segment("text", text=_STICKER)


COSTUMES: Mapping[Impl, Costume] = {costume.impl: costume for costume in (NapCat(), LLOneBot(), Lagrange(), GoCqhttp())}


def cq_string(segment: Json) -> str:
    """A segment as a CQ code; text is escaped so that it cannot be read as one."""
    if segment["type"] == "text":
        return _escaped(segment["data"]["text"])
    fields = "".join(
        f",{key}={_escaped(str(value)).replace(',', '&#44;')}" for key, value in segment["data"].items() if value != ""
    )
    return f"[CQ:{segment['type']}{fields}]"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("[", "&#91;").replace("]", "&#93;")


def _segment(kind: str, /, **data: str | int) -> Json:
    return {"type": kind, "data": data}


def _nt_extra(account: Account, message: Physical) -> Json:
    return {
        "group_name": message.said.group.name,
        "font": 14,
        "message_format": "string" if account.string_form else "array",
    }


def _nt_url(account: Account, md5: str, time_s: int) -> str:
    # The key is of one session and hour: two accounts never report the same address.
    rkey = hashlib.md5(f"{account.self_id}-{time_s // 3600}".encode(), usedforsecurity=False).hexdigest()[:20]
    return f"https://multimedia.{_HOST}/download?appid=1407&fileid=EhQ{md5[:24]}&rkey={rkey}"


def _md5(text: str) -> bytes:
    return hashlib.md5(text.encode(), usedforsecurity=False).digest()


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number

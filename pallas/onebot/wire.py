"""Frames of OneBot v11: bytes in, facts of `pallas.model` out, and the bytes of an action.

Strict in what identifies (ids, accounts, the message array), lenient in what decorates (sender, times). Whatever
comes in, the result is a frame or a `BadFrame` with a reason code, in time linear in its size. This is the hottest
code of a worker: the fast path holds exact types inline, everything unusual is one call away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from pallas.errors import AppError, BadFrame
from pallas.identity import seq16
from pallas.model import (
    ActionReply,
    Frame,
    Heartbeat,
    JsonObject,
    Lifecycle,
    Message,
    Notice,
    Reason,
    Request,
    Sender,
)
from pallas.onebot import cq
from pallas.onebot.decode import Limits, decode, decode_exact
from pallas.onebot.ends import End
from pallas.onebot.fields import (
    ID_CHARS,
    WORDS_CHARS,
    InexactNumber,
    id_of,
    id_param,
    json_type,
    mentioned,
    message_id_of,
    optional_id,
    protocol_word,
    refuse_inexact,
    retcode,
    seconds,
    words,
)

DEFAULT_LIMITS: Final = Limits()

_NOTHING: Final[JsonObject] = MappingProxyType({})
_PLAUSIBLE_S: Final = 10**11
_ID_PARAMS: Final = frozenset({"group_id", "user_id", "message_id", "self_id", "target_id", "operator_id"})


def parse(
    frame: bytes,
    *,
    bot_id: str,
    limits: Limits = DEFAULT_LIMITS,
    end: End = End.UNKNOWN,
    on_repaired: Callable[[], None] | None = None,
) -> Frame:
    """What a protocol end said in one frame. Raises BadFrame.

    `bot_id` is the link's account, or "" while only its first event can tell. `end` matters for Lagrange alone,
    whose message ids hold the sequence. `on_repaired` is called where half of a surrogate pair was replaced by U+FFFD.
    """
    body = decode(frame, limits, on_repaired)
    try:
        return _read(body, bot_id, limits, end)
    except InexactNumber:
        body = decode_exact(frame)
    try:
        return _read(body, bot_id, limits, end)
    except InexactNumber:
        raise BadFrame(Reason.BAD_ID, "a fraction or a number without end in the place of an id") from None


def action(name: str, params: Mapping[str, Any], echo: str) -> bytes:
    """The frame that asks an end to act. Ids become JSON numbers where every end can read them exactly.

    Raises AppError if a parameter cannot be written as JSON; nothing was sent then.
    """
    wire = {key: id_param(value) if key in _ID_PARAMS else value for key, value in params.items()}
    try:
        return orjson.dumps({"action": name, "params": wire, "echo": echo})
    except orjson.JSONEncodeError as error:
        raise AppError(f"the parameters of {name} cannot be written as JSON: {error}") from error


def sender_of(message: Message) -> Sender:
    """Who spoke, from the end's own description, which may be stale."""
    data = message.sender
    return Sender(message.user_id, words(data.get("nickname")), words(data.get("card")), words(data.get("role")))


def _read(body: dict[str, Any], bot_id: str, limits: Limits, end: End) -> Frame:
    kind = body.get("post_type")
    if kind is None and "post_type" not in body:
        return _reply(body)
    self_id = body.get("self_id")
    if self_id is not None:
        account = str(self_id) if type(self_id) is int and self_id > 0 else id_of(self_id)
        if account != bot_id:
            if bot_id:
                raise BadFrame(Reason.WRONG_ACCOUNT, f"an event of {account} on the link of {bot_id}")
            bot_id = account
    elif not bot_id:
        raise BadFrame(Reason.BAD_ID, "neither the link nor its event names an account")
    if kind == "message" or kind == "message_sent":  # noqa: PLR1714 - a chain is faster than building a set
        return _message(body, bot_id, limits, end)
    if kind == "meta_event":
        return _meta(body, bot_id)
    if kind == "notice":
        return _notice(body, bot_id)
    if kind == "request":
        return _request(body, bot_id)
    raise _unknown("post_type", kind)


def _message(body: dict[str, Any], bot_id: str, limits: Limits, end: End) -> Message:
    get = body.get
    kind = get("message_type")
    if kind == "group":
        value = get("group_id")
        group_id = str(value) if type(value) is int and value > 0 else id_of(value)
    elif kind == "private":
        group_id = ""
    else:
        raise _unknown("message_type", kind)
    value = get("user_id")
    user_id = str(value) if type(value) is int and value > 0 else id_of(value)
    message_id = get("message_id")
    content = get("message")
    if type(content) is list:
        segments = content
    elif type(content) is str:
        segments = _from_string(content, limits)
    elif type(content) is dict:
        segments = [content]
    else:
        raise BadFrame(Reason.WRONG_TYPE, f"message is {json_type(content)}")
    if len(segments) > limits.max_segments:
        raise BadFrame(Reason.TOO_LARGE, f"{len(segments)} segments, at most {limits.max_segments} are taken")
    texts: list[str] = []
    mentions: list[str] = []
    for segment in segments:
        if type(segment) is not dict:
            raise BadFrame(Reason.WRONG_TYPE, f"a segment is {json_type(segment)}")
        data = segment.get("data")
        if type(data) is not dict:
            data = _no_data(segment, data)
        name = segment.get("type")
        if name == "text":
            piece = data.get("text")
            texts.append(piece if type(piece) is str else _piece(data, piece))
        elif name == "at":
            mentions += mentioned(data.get("qq"))
        elif type(name) is not str or not name:
            raise BadFrame(Reason.WRONG_TYPE, f"the type of a segment is {json_type(name)}")
    time_s = get("time")
    sender = get("sender")
    anonymous = get("anonymous")
    return Message(
        bot_id,
        group_id,
        user_id,
        str(message_id) if type(message_id) is int and message_id > 0 else message_id_of(message_id),
        # Only a group's sequence is given out by the server for all to see.
        seq16(get("real_seq"), get("message_seq"), message_id, packed=end is End.LAGRANGE) if group_id else None,
        time_s if type(time_s) is int and 0 <= time_s <= _PLAUSIBLE_S else seconds(time_s),
        texts[0] if len(texts) == 1 else "".join(texts),
        tuple(mentions) if mentions else (),
        segments,
        sender if type(sender) is dict else _NOTHING,
        _anonymous(anonymous) if anonymous else "",
        user_id == bot_id or body["post_type"] == "message_sent",
    )


def _from_string(text: str, limits: Limits) -> list[Any]:
    if not text:
        return []
    if "[CQ:" not in text:
        return [{"type": "text", "data": {"text": cq.unescape(text)}}]
    codes = text.count("[CQ:")
    if codes > limits.max_segments:
        raise BadFrame(Reason.TOO_LARGE, f"{codes} segments, at most {limits.max_segments} are taken")
    return cq.parse(text)


def _notice(body: dict[str, Any], bot_id: str) -> Notice:
    kind = body.get("notice_type")
    if type(kind) is not str or not kind:
        raise _unknown("notice_type", kind)
    group_id = optional_id(body.get("group_id"))
    if not group_id and kind.startswith("group_"):
        raise BadFrame(Reason.BAD_ID, f"a notice {protocol_word(kind)} without a group")
    return Notice(
        bot_id,
        kind[:ID_CHARS],
        words(body.get("sub_type"))[:ID_CHARS],
        group_id,
        optional_id(body.get("user_id")),
        optional_id(body.get("operator_id")),
        optional_id(body.get("target_id")),
        seconds(body.get("time")),
        _detail(body),
        body,
    )


def _detail(body: dict[str, Any]) -> str:
    """What tells two notices of one type and the same people apart; ids of messages are each account's own."""
    for field in ("duration", "card_new", "honor_type", "title", "comment"):
        detail = words(body.get(field))
        if detail:
            return detail
    file = body.get("file")
    if isinstance(file, dict):
        return words(file.get("name"))
    likes = body.get("likes")
    if isinstance(likes, list):
        return ",".join([words(like.get("emoji_id")) for like in likes if isinstance(like, dict)])[:WORDS_CHARS]
    return ""


def _request(body: dict[str, Any], bot_id: str) -> Request:
    kind = body.get("request_type")
    if kind == "group":
        group_id = id_of(body.get("group_id"))
    elif kind == "friend":
        group_id = ""
    else:
        raise _unknown("request_type", kind)
    flag = body.get("flag")
    if type(flag) is int:
        flag = str(flag)
    if type(flag) is not str or not flag:
        raise BadFrame(Reason.WRONG_TYPE, f"the flag of a request is {json_type(flag)}: it could not be answered")
    return Request(
        bot_id,
        kind,
        words(body.get("sub_type"))[:ID_CHARS],
        group_id,
        id_of(body.get("user_id")),
        words(body.get("comment")),
        flag,
        seconds(body.get("time")),
        body,
    )


def _meta(body: dict[str, Any], bot_id: str) -> Lifecycle | Heartbeat:
    kind = body.get("meta_event_type")
    time_s = seconds(body.get("time"))
    if kind == "heartbeat":
        status = body.get("status")
        online = status.get("online") if isinstance(status, dict) else None
        interval = body.get("interval")
        return Heartbeat(
            bot_id,
            online if isinstance(online, bool) else None,
            interval if type(interval) is int and interval > 0 else 0,
            time_s,
        )
    if kind == "lifecycle":
        return Lifecycle(bot_id, words(body.get("sub_type"))[:ID_CHARS], time_s)
    raise _unknown("meta_event_type", kind)


def _reply(body: dict[str, Any]) -> ActionReply:
    status, code, data, echo = body.get("status"), retcode(body.get("retcode")), body.get("data"), body.get("echo")
    if not isinstance(status, str):
        if code is None:
            raise BadFrame(Reason.UNKNOWN_POST_TYPE, "neither an event nor an answer: no post_type, status or retcode")
        status = "ok"
    refuse_inexact(echo)
    if type(data) is dict:
        refuse_inexact(data.get("message_id"))
    # Where the code is missing the status alone tells, and 0 with `ok` false says that no code was given.
    code = code or 0
    return ActionReply(
        echo,
        status in {"ok", "async"} and code in {0, 1},
        code,
        data,
        _explanation(body),
        more=body.get("stream") == "stream-action" and _is_partial(data),
    )


def _is_partial(data: object) -> bool:
    """Whether more frames of a stream action follow: the last one is marked as such only inside its data.

    A piece of an upload is acknowledged in the same form, but that is all the answer its call will get.
    """
    return isinstance(data, dict) and data.get("type") == "stream" and "received_chunks" not in data


def _explanation(body: dict[str, Any]) -> str:
    """The end's words for a failure: a symbol and a sentence where it gives both."""
    said: list[str] = []
    for field in ("msg", "message", "wording"):
        part = words(body.get(field))
        if part and part not in said:
            said.append(part)
    return ": ".join(said)[:WORDS_CHARS]


def _no_data(segment: dict[str, Any], data: object) -> dict[str, Any]:
    if data is not None:
        raise BadFrame(Reason.WRONG_TYPE, f"the data of a segment is {json_type(data)}")
    empty: dict[str, Any] = {}
    segment["data"] = empty
    return empty


def _piece(data: dict[str, Any], piece: object) -> str:
    if piece is None:
        text = ""
    elif type(piece) is int:
        text = str(piece)
    else:
        raise BadFrame(Reason.WRONG_TYPE, f"the text of a segment is {json_type(piece)}")
    data["text"] = text
    return text


def _anonymous(value: object) -> str:
    """The flag of a member without a name; whatever else tells such members apart where the flag is missing."""
    if isinstance(value, dict):
        for field in ("flag", "name", "id"):
            flag = words(value.get(field))
            if flag:
                return flag
        return "anonymous"
    return words(value)


def _unknown(field: str, value: object) -> BadFrame:
    return BadFrame(Reason.UNKNOWN_POST_TYPE, f"{field} {protocol_word(value)}")

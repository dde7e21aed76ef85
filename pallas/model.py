"""The facts that travel through a worker: events, lanes, outcomes and reason codes.

Ids are strings everywhere; numbers exist only on the wire (`pallas.onebot.wire` converts). A fact is never
changed after it was built, except that `Message` computes some of its views on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

JsonObject = Mapping[str, Any]


class Lane(StrEnum):
    """Which rule decides who handles a message (design: lanes)."""

    FANOUT = "fanout"
    COMMAND = "command"
    CHAT = "chat"
    NOTICE = "notice"


class Outcome(StrEnum):
    """How a distinct message ended; exactly one each."""

    HANDLED = "handled"
    YIELDED = "yielded"
    DROPPED = "dropped"
    DEAD = "dead"


class Reason(StrEnum):
    """Why a report was refused or a message ended as it did. Stable codes: pages translate them."""

    # refused at the door: the report never became a message of ours
    NOT_JSON = "not_json"
    NOT_UTF8 = "not_utf8"
    TOO_DEEP = "too_deep"
    TOO_LARGE = "too_large"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_POST_TYPE = "unknown_post_type"
    BAD_ID = "bad_id"
    WRONG_ACCOUNT = "wrong_account"
    OWN_MESSAGE = "own_message"
    FLEET_SENDER = "fleet_sender"
    STALE = "stale"
    DRAINING = "draining"
    # copies of a message that is already known
    REPLAY = "replay"
    SAME_WORKER = "same_worker"
    OTHER_SHARD = "other_shard"
    # nobody here wants it
    NO_HANDLER = "no_handler"
    # ends of a distinct message
    OK = "ok"
    HANDLER_ERROR = "handler_error"
    HANDLER_TIMEOUT = "handler_timeout"
    NOT_PERMITTED = "not_permitted"
    OVERLOAD = "overload"
    REDIS_UNAVAILABLE = "redis_unavailable"
    LEASE_LOST = "lease_lost"
    NO_LINK = "no_link"
    HOLDER_LOST = "holder_lost"
    SENT_UNKNOWN = "sent_unknown"
    SHUTDOWN = "shutdown"


@dataclass(slots=True, frozen=True)
class Sender:
    """Who spoke, as the reporting end describes them; every field may be stale or empty."""

    user_id: str
    nickname: str = ""
    card: str = ""
    role: str = ""


# Not frozen: a frozen dataclass of this width costs 2 µs more per report, and nothing assigns after the parser.
@dataclass(slots=True, eq=False)
class Message:
    """One account's report of one message.

    `seq` is the server's per-group sequence reduced to 16 bits (`pallas.identity.seq16`), `None` where the end
    reports none; `message_id` is account-local and `""` where the end could not give one. `raw_segments` is the
    end's own array (already bounded and type-checked), from which `pallas.segments.from_wire` builds objects.
    """

    bot_id: str
    group_id: str
    """Empty for a private message."""
    user_id: str
    message_id: str
    seq: int | None
    time_s: int
    text: str
    """The text segments, joined, as the person typed them."""
    mentions: tuple[str, ...]
    """Account ids that are mentioned, in order; `all` where everyone is."""
    raw_segments: list[dict[str, Any]]
    sender: JsonObject
    """The end's sender object; read it through `pallas.onebot.wire.sender_of`."""
    anonymous: str = ""
    """Flag that tells anonymous members apart, who all share one user id."""
    self_sent: bool = False
    """The end reports a message of its own account."""


@dataclass(slots=True, frozen=True)
class Notice:
    """One account's report that something happened: a join, a recall, a poke."""

    bot_id: str
    notice_type: str
    sub_type: str
    group_id: str
    user_id: str
    operator_id: str
    target_id: str
    time_s: int
    detail: str
    """Duration, file name or comment: what else tells two notices apart."""
    raw: JsonObject


@dataclass(slots=True, frozen=True)
class Request:
    """A friend or group request; `flag` answers it and belongs to the reporting account."""

    bot_id: str
    request_type: str
    sub_type: str
    group_id: str
    user_id: str
    comment: str
    flag: str
    time_s: int
    raw: JsonObject


@dataclass(slots=True, frozen=True)
class Lifecycle:
    """The end says that it is there (`connect`) or was switched on or off."""

    bot_id: str
    sub_type: str
    time_s: int


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """`online` is what the end claims: `None` where it does not say."""

    bot_id: str
    online: bool | None
    interval_ms: int
    time_s: int


@dataclass(slots=True, frozen=True)
class ActionReply:
    """An end's answer to an action; `echo` identifies the call, `more` that further frames follow."""

    echo: object
    ok: bool
    retcode: int
    data: Any
    message: str
    more: bool = False


Event = Message | Notice | Request | Lifecycle | Heartbeat
Frame = Event | ActionReply
